"""Decides what part this process takes in a run: none, a rank of it, or a run of its own beside it.

In a process that `traceml run` reached, nothing is opened before a first sign of training, and the ring stands where
the collector looks only from the first step on. A rank is claimed by a file, so that there is never a second rank 0:
who comes second trains on its own, and is a run `<name>-child-<pid>`.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence

from traceml.recorder import signs
from traceml.recorder import step as _step
from traceml.recorder.guard import say
from traceml.recorder.interrupts import let_pass
from traceml.settings import RUN_VARIABLE, Settings, resolve

if TYPE_CHECKING:
    from traceml.launch.place import Place
    from traceml.recorder.session import Session
    from traceml.schema.records import Manifest


class Part:
    """The part that is taken: the session, and where its files are."""

    def __init__(self, session: Session, folder: Path, ring_dir: Path, arguments: Mapping[str, Any]) -> None:
        self.session, self.folder, self.ring_dir, self.arguments = session, folder, ring_dir, arguments
        self.owns_collector = False
        self.is_child = False  # a run of its own beside the one that was asked for: it says nothing


#: What this process takes part in, or took part in last.
current: Optional[Part] = None
#: Whether `traceml run` reached this process, so that it waits for signs.
is_armed = False

_arguments: Mapping[str, Any] = {}  # of an init() whose session is not open yet
_only: Optional[Sequence[str]] = None  # likewise, or of the session: the phases that were asked for
_num_runs = 0
_base_name = ""  # of the process's first run
_is_registered = False


def arm() -> None:
    """Waits for the first sign that this process, one of a run, trains; torch has been imported."""
    global is_armed  # noqa: PLW0603  # one a process
    if is_armed or RUN_VARIABLE not in os.environ:
        return
    is_armed = True
    os.register_at_fork(after_in_child=_begin_as_child)
    _mark(_manifest()[1])
    signs.arm(on_sign=_open_late)


def is_helper() -> bool:
    """Whether multiprocessing started this process: whether it trains is only known when it does."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and (process.parent_process() is not None or is_preparing())


def is_preparing() -> bool:
    """Whether spawn or forkserver imports the script anew just now, for a child whose work is not known yet.

    Its `parent_process()` is None until that is done, and finalizers that were registered are thrown away behind it.
    """
    process = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)


def begin(settings: Settings, arguments: Mapping[str, Any], *, only: Optional[Sequence[str]] = None) -> None:
    """Takes part because the script says so, with `init()`.

    Args:
        settings: As resolved for it.
        arguments: What init() was given, by which a second call is told from an equal one.
        only: The phases whose hooks are installed; None: all, and steps are inferred until there is a `trace_step`.

    Raises:
        RunError: The run's folder cannot be found, or none can be made.
        OSError: The ring cannot be made.
        ImportError: There is no torch.
    """
    global _arguments, _only, _num_runs  # noqa: PLW0603
    import torch  # noqa: F401, PLC0415  # the script is about to train with it

    if not _num_runs and (is_preparing() or (is_armed and is_helper())):
        _arguments, _only = arguments, only  # whether it trains is not known yet
        _wait()
        return
    signs.disarm()
    _only = only
    if current is not None and current.session.is_open and only is not None and not current.session.is_seated:
        current.session.close("end")  # opened at a first sign, with every hook; nothing was measured yet
        current.session.discard()
        _num_runs -= 1
        if is_helper():
            _arguments = arguments
            _open_late(is_step=False)
            return
    if current is not None and current.session.is_open:  # opened at a first sign
        if only is not None:
            current.session.keep(only)
            say(
                f"init(mode={arguments['mode']!r}) came behind the first step: it was recorded with every hook. "
                "Call init() before the optimizer is made."
            )
        current.arguments = arguments
        if settings.total_steps is not None:
            current.session.expect(settings.total_steps)
        if not is_helper():
            _seat()
        return
    if os.environ.get(RUN_VARIABLE) and not _num_runs:
        _open(settings, arguments)
        _seat()
        return
    for line in settings.complaints:
        say(line.removeprefix("TraceML: "))
    _open_alone(settings if current is None else _next_trial(settings, current.folder), arguments)


def end(how: str, exception: str = "") -> None:
    """Ends the recording; a process that took no step leaves nothing behind."""
    part = current
    signs.disarm()
    if part is None or not part.session.is_open:
        return
    try:
        part.session.close(how, exception)
        part.session.discard()
        if part.owns_collector and not part.is_child:
            from traceml.launch.collector import await_verdict  # noqa: PLC0415

            line = await_verdict(part.ring_dir, part.folder, patience_s=1.0)
            say(line or f"the summary of {_shown(part.folder)} is still being written.")
    except Exception as error:  # noqa: BLE001  # the end of the user's process is theirs
        let_pass(error)
        say(f"the end of the run could not be recorded: {error}")


# -- opening -----------------------------------------------------------------------------------------------------------


def _open_late(is_step: bool) -> None:  # as signs.arm calls it
    """The first sign: everything is watched from now on; whether it is a rank, a step tells."""
    settings = resolve(init={"total_steps": _arguments.get("total_steps")})
    if settings.disabled:
        return
    part = _open(settings, _arguments)
    if is_step:
        _seat()
        return
    signs.arm(on_sign=lambda _: _seat(), optimizers=False)
    pen = part.session.pen
    pen.late_looks.append(lambda: _seat() if pen.num_steps else None)  # without a backward: the first step's end
    pen.tend_soon()


def _wait() -> None:
    if not is_armed:  # else the signs are armed since torch was imported
        signs.arm(on_sign=_open_remembered, optimizers=False)


def _open_remembered(_is_step: bool) -> None:  # as signs.arm calls it
    """A spawned process, under plain python, does a step: the init() of its script's import counts from now on."""
    settings = resolve(init={"total_steps": _arguments.get("total_steps")})
    if os.environ.get(RUN_VARIABLE):  # one that the way in does not reach
        _open(settings, _arguments)
        _seat()
        return
    _open_alone(settings, _arguments)


def _open(settings: Settings, arguments: Mapping[str, Any]) -> Part:
    """A session of the run that this process belongs to, not seated yet."""
    folder, manifest = _manifest()
    total_steps = settings.total_steps or manifest.total_steps
    session = _session(Path(manifest.ring_dir), manifest, settings, total_steps=total_steps)
    _mark(manifest)
    return _taken(Part(session, folder, Path(manifest.ring_dir), arguments))


def _open_alone(settings: Settings, arguments: Mapping[str, Any]) -> None:
    """A run of its own, under plain python or after a shutdown."""
    from traceml.launch.collector import start_collector  # noqa: PLC0415
    from traceml.launch.place import prepare_run  # noqa: PLC0415

    def make() -> Place:
        return prepare_run(settings, script=_script(), arguments=sys.argv[1:], started_by="init")

    place, is_first = _gather(make) if current is None else (make(), True)
    ring_dir = Path(place.manifest.ring_dir)
    session = _session(ring_dir, place.manifest, settings, total_steps=place.manifest.total_steps, is_seated=is_first)
    part = _taken(Part(session, place.folder, ring_dir, arguments))
    if not is_first:
        _seat()  # of the run of another rank; where this rank is taken already, of one of its own
        return
    _claim(ring_dir / f"rank-{session.identity.rank}-{session.identity.attempt}")
    start_collector(part.folder, pipe=False)
    part.owns_collector = True
    say(f"recording into {_shown(part.folder)} · `traceml view {_shown(part.folder)}` shows it at any time")


def _gather(make: Callable[[], Place]) -> tuple[Place, bool]:
    """The run of the job that this process is a rank of, and whether it was made here."""
    from traceml.launch.gathering import gather, job_of  # noqa: PLC0415

    job = job_of(os.environ, os.getppid())
    if job is None:
        return make(), True
    try:
        return gather(job, make)
    except OSError:  # nowhere to meet: each rank is a run
        return make(), True


def _session(
    ring_dir: Path, manifest: Manifest, settings: Settings, *, total_steps: Optional[int], is_seated: bool = False
) -> Session:
    from traceml.recorder.session import Session  # noqa: PLC0415  # not before it is needed

    session = Session(
        ring_dir,
        total_steps=total_steps,
        max_steps=manifest.trace_max_steps,
        first=not _num_runs,
        is_seated=is_seated,
        only=_only,
    )
    session.limit(settings.overhead_budget_pct)
    return session


def _taken(part: Part) -> Part:
    global current, _num_runs, _base_name, _is_registered  # noqa: PLW0603
    current = part
    _num_runs += 1
    _base_name = _base_name or part.folder.name
    if not _is_registered:
        _is_registered = True
        if is_helper():  # it ends by os._exit, behind multiprocessing's own finalizers
            from multiprocessing.util import Finalize  # noqa: PLC0415  # loaded already

            Finalize(None, _at_exit, exitpriority=0)
        else:
            atexit.register(_at_exit)
    return part


# -- becoming a rank ---------------------------------------------------------------------------------------------------


def _seat() -> None:
    """The first step: this process is a rank, of its run or, where that rank is taken, of a run of its own."""
    part = current
    if part is None or part.session.is_seated:
        return
    signs.disarm()
    who = part.session.identify()
    if _claim(part.ring_dir / f"rank-{who.rank}-{who.attempt}"):
        part.session.seat(part.ring_dir)
    else:
        _move_out(part)


def _claim(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _move_out(part: Part) -> None:
    """Another process is that rank already: this one is a run of its own, with what it has recorded so far."""
    from traceml.launch.collector import start_collector  # noqa: PLC0415
    from traceml.launch.place import prepare_run  # noqa: PLC0415

    chosen = resolve(init={"total_steps": part.arguments.get("total_steps")})
    name = f"{part.folder.name}-child-{os.getpid()}"
    chosen = replace(chosen, logs_dir=str(part.folder.parent), run_name=name)
    place = prepare_run(chosen, script=_script(), arguments=sys.argv[1:], started_by="traceml run")
    ring_dir = Path(place.manifest.ring_dir)
    try:
        part.session.seat(ring_dir)
    except OSError:  # that folder is on another file system: begin anew there
        part.session.close("end")
        part.session.discard()
        part.session = _session(ring_dir, place.manifest, chosen, total_steps=chosen.total_steps, is_seated=True)
    part.folder, part.ring_dir, part.is_child, part.owns_collector = place.folder, ring_dir, True, True
    start_collector(place.folder, pipe=False)


def _begin_as_child() -> None:
    """In a forked child: what the parent takes part in is not the child's; should it train, it shows its own signs."""
    global current, _num_runs, _is_registered
    session = sys.modules.get("traceml.recorder.session")
    if session is not None:
        session.forget_in_child()
    current, _num_runs, _is_registered = None, 0, False
    _step.begin_session(None)
    signs.arm(on_sign=_open_late)


# -- the run -----------------------------------------------------------------------------------------------------------


def _manifest() -> tuple[Path, Manifest]:
    from traceml.wire.manifest import read_manifest  # noqa: PLC0415  # not before it is needed

    folder = Path(os.environ[RUN_VARIABLE])
    return folder, read_manifest(folder)


def _mark(manifest: Manifest) -> None:
    from traceml.wire.ringfolder import ARRIVED  # noqa: PLC0415  # not loaded where nothing trains

    (Path(manifest.ring_dir) / ARRIVED).touch(mode=0o600)
    names = ("TORCHELASTIC_RESTART_COUNT", "RANK", "WORLD_SIZE")
    numbers = [os.environ.get(name, "") for name in names]
    if all(number.isdecimal() for number in numbers) and not is_helper():  # of a job that may be restarted
        told = "-".join([ARRIVED, *numbers, str(os.getpid())])
        (Path(manifest.ring_dir) / told).touch(mode=0o600)


def _next_trial(settings: Settings, before: Path) -> Settings:
    """A second run in one process stands beside the first: `<name>-2`."""
    base, number = (_base_name or before.name), _num_runs + 1
    while (before.parent / f"{base}-{number}").exists():
        number += 1
    return replace(settings, logs_dir=str(before.parent), run_name=f"{base}-{number}")


def _script() -> str:
    script = sys.argv[0] if sys.argv else ""
    if "ipykernel" in sys.modules and "kernel_launcher" in script:
        return "notebook"  # a kernel is not told whose it is
    return "python" if script in ("", "-c", "-m") else script


def _shown(folder: Path) -> str:
    try:
        return str(folder.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(folder)


def _at_exit() -> None:
    from traceml.recorder.session import exception_name  # noqa: PLC0415

    name = exception_name()
    end("exception" if name else "end", name)
