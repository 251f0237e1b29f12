"""What users import: init, trace_step, region, count, summary, final_summary, shutdown."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from traceml.errors import StateError, UsageError
from traceml.recorder import step as _step
from traceml.recorder.guard import say
from traceml.recorder.step import count, region, trace_step
from traceml.settings import RUN_VARIABLE, Settings, resolve

__all__ = ["count", "final_summary", "init", "region", "shutdown", "summary", "trace_step"]

_PATIENCE_S = 2.0
_MODES = ("auto",)


class _Run:
    """The run of this process: its session, and where its files are."""

    def __init__(self, session: Any, folder: Path, ring_dir: Path, *, owns_collector: bool, arguments: Any) -> None:
        self.session, self.folder, self.ring_dir = session, folder, ring_dir
        self.owns_collector, self.arguments = owns_collector, arguments


_run: Optional[_Run] = None
_num_runs = 0
_base_name = ""  # of the process's first run
_is_registered = False


def init(mode: str = "auto", *, total_steps: Optional[int] = None) -> None:
    """Begins recording this process's training. Call it once, before the loop; a second equal call does nothing.

    Under `traceml run` the run's folder exists already; with plain `python` this makes one under `logs/` and starts the
    collector beside the training. `TRACEML_DISABLED=1` makes this and everything after it inert.

    Args:
        mode: "auto": every hook.
        total_steps: How many steps the training will take, for the time left.

    Raises:
        UsageError: `bad-mode`: mode is unknown.
        StateError: `second-init`: the run was begun with other arguments.
        SettingsError: `bad-setting`: a TRACEML_ variable or [tool.traceml] holds a value that cannot be used.
    """
    global _run  # noqa: PLW0603  # one run a process at a time
    if mode not in _MODES:
        raise UsageError(f"init(mode={mode!r}) is not known. Use mode='auto'.", slug="bad-mode")
    if total_steps is not None and (not isinstance(total_steps, int) or total_steps < 1):
        raise UsageError(f"init(total_steps={total_steps!r}) is not a whole number of at least 1.", slug="bad-argument")
    arguments = {"mode": mode, "total_steps": total_steps}
    if _run is not None and _run.session.is_open:
        if _run.arguments != arguments:
            first = ", ".join(f"{key}={value!r}" for key, value in _run.arguments.items())
            second = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            hint = "one run has one set of arguments. Drop the second call, or call shutdown() first."
            raise StateError(f"init({second}) after init({first}): {hint}", slug="second-init")
        return
    settings = resolve(init={"total_steps": total_steps})
    why_not = _why_not(settings)
    if why_not is not None:
        _step.begin_session(None, why_not or None)
        return
    try:
        _run = _begin(settings, arguments)
    except Exception as error:  # noqa: BLE001  # whatever it is, the training is to go on
        _step.begin_session(None)
        say(f"this run is not recorded: {error}")


def _why_not(settings: Settings) -> Optional[str]:
    """Why nothing is recorded here: a sentence to be said at the first step, '' to stay silent, None to record."""
    if settings.disabled:
        return ""
    if os.name != "posix":
        say("recording works on Linux and macOS; here the script runs untraced.")
        return ""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return ""  # a worker of the training, not the training
    if RUN_VARIABLE not in os.environ and "PYTEST_CURRENT_TEST" in os.environ and not settings.in_pytest:
        return ""
    return None


def _begin(settings: Settings, arguments: Any) -> _Run:
    global _num_runs, _is_registered, _base_name  # noqa: PLW0603
    import torch  # noqa: F401, PLC0415  # the script is about to train with it

    from traceml.recorder.session import Session  # noqa: PLC0415  # not before it is needed
    from traceml.wire.manifest import read_manifest  # noqa: PLC0415

    given = os.environ.get(RUN_VARIABLE, "") if not _num_runs else ""
    if given:
        folder, manifest = Path(given), read_manifest(Path(given))
    else:
        from traceml.launch.place import prepare_run  # noqa: PLC0415

        for line in settings.complaints:
            say(line.removeprefix("TraceML: "))
        chosen = settings if _run is None else _next_trial(settings, _run.folder)
        place = prepare_run(chosen, script=_script(), arguments=sys.argv[1:], started_by="init")
        folder, manifest = place.folder, place.manifest
    session = Session(
        Path(manifest.ring_dir),
        total_steps=settings.total_steps or manifest.total_steps,
        max_steps=manifest.trace_max_steps,
        first=not _num_runs,
    )
    _num_runs += 1
    _base_name = _base_name or folder.name
    if not given:
        from traceml.launch.collector import start_collector  # noqa: PLC0415

        start_collector(folder, pipe=False)
        say(f"recording into {_shown(folder)} · `traceml view {_shown(folder)}` shows it at any time")
    if not _is_registered:
        _is_registered = True
        atexit.register(_at_exit)
    return _Run(session, folder, Path(manifest.ring_dir), owns_collector=not given, arguments=arguments)


def _next_trial(settings: Settings, before: Path) -> Settings:
    """A second run in one process stands beside the first: `<name>-2`."""
    base, number = (_base_name or before.name), _num_runs + 1
    while (before.parent / f"{base}-{number}").exists():
        number += 1
    return replace(settings, logs_dir=str(before.parent), run_name=f"{base}-{number}")


def _script() -> str:
    return sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"


def _shown(folder: Path) -> str:
    try:
        return str(folder.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(folder)


def shutdown() -> None:
    """Ends the recording: every hook comes off and the summary is written; training may go on untouched.

    A later `init()` begins a new run.
    """
    _end("shutdown")


def _at_exit() -> None:
    from traceml.recorder.session import exception_name  # noqa: PLC0415

    name = exception_name()
    _end("exception" if name else "end", name)


def _end(how: str, exception: str = "") -> None:
    run = _run
    if run is None or not run.session.is_open:
        return
    try:
        run.session.close(how, exception)
        if run.owns_collector:
            from traceml.launch.collector import await_verdict  # noqa: PLC0415

            line = await_verdict(run.ring_dir, run.folder, patience_s=1.0)
            say(line or f"the summary of {_shown(run.folder)} is still being written.")
    except Exception as error:  # noqa: BLE001  # the end of the user's process is theirs
        say(f"the end of the run could not be recorded: {error}")


def final_summary() -> Optional[dict[str, Any]]:
    """The whole report as of now, as in `final_summary.json`; None when nothing is recorded.

    Computes nothing here: it asks the collector and waits at most 2 s. `age_s` says how old the answer is, in seconds;
    0 when it covers the last finished step.
    """
    return _asked("report")


def summary() -> Optional[dict[str, Any]]:
    """The report as a flat dict of numbers and words, for trackers; None when nothing is recorded."""
    return _asked("summary")


def _asked(which: str) -> Optional[dict[str, Any]]:
    run = _run
    if run is None:
        return None
    try:
        is_fresh = run.session.ask(patience_s=_PATIENCE_S) if run.session.is_open else True
        path = run.ring_dir / f"report-{os.getpid()}.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        answer: dict[str, Any] = found[which]
        answer["age_s"] = 0.0 if is_fresh else round(time.time() - path.stat().st_mtime, 3)
    except (OSError, ValueError, KeyError):
        return None
    return answer
