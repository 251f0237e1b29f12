"""Runs a training script under TraceML: makes the run, starts script and collector, shows the card."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Final, Iterator

from traceml import settings
from traceml.cli.arguments import refuse_unbuilt
from traceml.cli.speaking import tell
from traceml.errors import CommandError
from traceml.launch.collector import Keeper
from traceml.launch.command import closed_by, command_of, environment_of
from traceml.launch.face import Face, choose_face, look_around
from traceml.launch.isolated import SCREEN_MODULES, isolated
from traceml.launch.last_words import last_words
from traceml.launch.output import log_name
from traceml.launch.place import Place, discard, prepare_run
from traceml.launch.plain import Plain
from traceml.launch.script import run_script
from traceml.launch.view import Job
from traceml.wire.node import Node, read_node
from traceml.wire.ringfolder import ARRIVED, CHECK, remove_ring_folder

if TYPE_CHECKING:
    from traceml.cli.arguments import RunArguments
    from traceml.launch.script import Outcome
    from traceml.launch.view import View
    from traceml.settings import Settings

NUM_STEPS: Final = 20  # that a check looks at
_LINE_S: Final = 60.0  # between two plain lines, unless --interval says otherwise
_MAX_NAMES: Final = 4
_CARD_FILE: Final = "final_summary.txt"
_SUMMARY_FILE: Final = "final_summary.json"


def run(arguments: RunArguments) -> int:
    """`traceml run`: the script's own exit code, 128+n after signal n; Ctrl-C ends us by SIGINT, as it did the script.

    Our words go to stderr, all of them; stdout is the script's, byte for byte.

    Raises:
        SettingsError: A setting cannot be used.
        UsageError: `no-script`, `not-built`.
        CommandError: `no-command`.
        RunError: `run-exists`, `no-place`.
    """
    options = dict(arguments.options)
    if arguments.check and options.get("trace_max_steps") is None:
        options["trace_max_steps"] = NUM_STEPS
    chosen = settings.resolve(command_line=options)
    for complaint in chosen.complaints:
        _say(complaint)
    refuse_unbuilt(chosen.mode)
    target = arguments.target
    ranks = chosen.nproc_per_node
    command = command_of(arguments.kind, target, arguments.script_args, python=sys.executable, num_ranks=ranks)
    if chosen.disabled:
        os.execvpe(command[0], command, {**os.environ, "TRACEML_DISABLED": "1"})  # noqa: S606  # bare: nothing of ours stays
    place = prepare_run(
        chosen,
        script=target,
        arguments=arguments.script_args,
        started_by="traceml run",
        is_check=arguments.check,
    )
    for note in place.notes:
        _say(note)
    closed = closed_by(command)
    if closed is not None:
        _say(f"TraceML: `python {closed}` cannot be reached from outside; only a script that calls init() is recorded.")
    try:
        outcome = _run_job(chosen, place, command)
    except CommandError:
        discard(place)
        raise
    if outcome.signal == signal.SIGINT:
        _die_of_interrupt()
    return outcome.code


def _run_job(chosen: Settings, place: Place, command: list[str]) -> Outcome:
    keeper = Keeper(place.folder)
    shown: list[str] = []

    def show(lines: str) -> None:
        shown.append(lines)
        tell(lines)

    face = Face.NONE
    if not place.manifest.is_check:
        face = choose_face(mode=chosen.mode, view=chosen.view, around=look_around(os.environ))
    view = _view_of(face, chosen, place, keeper, show)
    has_pty = view.master is not None
    if has_pty and chosen.nproc_per_node not in (None, "1"):
        _say(f"TraceML: what rank 0 prints is shown; that of the others is in {_short(place.folder)}/rank-<r>.log.")
    environ = environment_of(place.folder, os.environ, one_rank=has_pty)
    outcome = run_script(Job(command, environ), keeper, view)
    _show_end(place, keeper, outcome, has_table=place.manifest.is_check and bool(shown))
    return outcome


def _view_of(face: Face, chosen: Settings, place: Place, keeper: Keeper, show: Callable[[str], None]) -> View:
    """The inline panel; where no pty can be had, and elsewhere, nothing between the script and its descriptors."""
    log = place.folder / log_name(0)
    if face in (Face.INLINE, Face.FULL):
        from traceml.launch.terminal.covered import Covered  # noqa: PLC0415  # 1 MB that only a terminal needs
        from traceml.launch.terminal.inline import Inline  # noqa: PLC0415  # likewise

        is_ascii = "utf" not in (sys.stdout.encoding or "").lower()
        title = _title(place, is_ascii=is_ascii)
        try:
            if face is Face.FULL:
                cover = isolated("traceml.cli.__main__", "attach", str(place.folder), needs=SCREEN_MODULES)
                return Covered(keeper, log=log, title=title, environ=os.environ, is_ascii=is_ascii, cover=cover)
            return Inline(keeper, log=log, title=title, environ=os.environ, is_ascii=is_ascii)
        except OSError as error:
            _say(f"TraceML: no panel here ({error.strerror}); a line a minute instead.")
    interval_s = chosen.interval if "interval" in chosen.sources else _LINE_S
    copy = log if chosen.save_output else None
    return Plain(keeper, show=show, interval_s=None if face is Face.NONE else interval_s, log=copy)


def _short(path: Path) -> str:
    """Below the working folder, as people say it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _title(place: Place, *, is_ascii: bool) -> str:
    rule, dot = ("--", "-") if is_ascii else ("──", "·")
    return f"{rule} {place.manifest.name} {dot} starting"


def _show_end(place: Place, keeper: Keeper, outcome: Outcome, *, has_table: bool) -> None:
    """The card, or the table of a check; the notes; and the ring folder's removal: we are the last who needs it."""
    ring_dir = Path(place.manifest.ring_dir)
    node = read_node(ring_dir)
    folder = node.folder or place.folder
    for note in filter(None, (*outcome.notes, keeper.note, *_noticed(place, node, outcome))):
        _say(note)
    try:
        text = (ring_dir / CHECK if place.manifest.is_check else _card_file(folder, outcome)).read_text(
            encoding="utf-8"
        )
    except OSError:
        for note in node.notes:  # those the card would have told
            _say(f"TraceML: {note}")
        _say(f"TraceML: no summary yet; `traceml view {folder}` shows it.")
        return  # the collector, if it lives, still works there
    for line in last_words(place.folder, folder / _SUMMARY_FILE):
        _say(line)
    if not has_table:
        tell("\n" + text)
    remove_ring_folder(ring_dir)


def _card_file(folder: Path, outcome: Outcome) -> Path:
    """The run's card, or the script's own where it trained behind another process that had become the run."""
    own = _own_folder(folder, outcome) / _CARD_FILE
    return own if own.exists() else folder / _CARD_FILE


def _own_folder(folder: Path, outcome: Outcome) -> Path:
    return folder.with_name(f"{folder.name}-child-{outcome.pid}")


def _noticed(place: Place, node: Node, outcome: Outcome) -> Iterator[str]:
    """What only we see: that nobody could be reached, and the runs of others that trained beside this one."""
    if node.num_ranks == 0 and not (Path(place.manifest.ring_dir) / ARRIVED).exists():
        yield "TraceML: no Python of this run was seen to import torch; python -I, -S and -E cannot be reached."
    own = _own_folder(place.folder, outcome)
    if own.exists():
        yield f"TraceML: a process that the script started trained first, `traceml view {place.folder}` shows it."
    beside = sorted(path.name for path in place.folder.parent.glob(f"{place.folder.name}-child-*") if path != own)
    if beside:
        names = ", ".join(beside[:_MAX_NAMES])
        more = f" and {len(beside) - _MAX_NAMES} more" if len(beside) > _MAX_NAMES else ""
        yield f"TraceML: other processes trained, too, each a run of its own: {names}{more}."


def _say(text: str) -> None:
    tell(text + "\n")


def _die_of_interrupt() -> None:
    """Ends us by SIGINT: only then does a shell's loop stop, too. Returns where SIGINT is ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
