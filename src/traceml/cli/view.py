"""Shows a run: its card, or its summary as JSON."""

from __future__ import annotations

import difflib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from traceml import settings
from traceml.cli.speaking import answer, drawn_for, tell
from traceml.errors import RunError
from traceml.report.files import CARD_FILE, summary_text, write_summary
from traceml.report.files import FILE as SUMMARY_FILE
from traceml.report.run import Run, open_run
from traceml.views.text.card import card
from traceml.wire.manifest import FILE as MANIFEST_FILE
from traceml.wire.manifest import write_private
from traceml.wire.paths import usable

if TYPE_CHECKING:
    from traceml.cli.arguments import ViewArguments
    from traceml.report.contract import Report

_MOST_SHOWN: Final = 120  # letters of a name that is no run


def view(asked: ViewArguments) -> int:
    """`traceml view`: the newest state of a run on stdout; a run whose processes are gone is recovered first.

    Raises:
        RunError: There is no such run, or nothing of it can be read.
    """
    chosen = settings.resolve(command_line=asked.options)
    for complaint in chosen.complaints:
        tell(f"{complaint}\n")
    run = find_run(asked.run, Path(usable(chosen.logs_dir)))
    report = finished_report(run)
    text = summary_text(report) if asked.as_json else card_for(sys.stdout, report)
    answer(text)
    return 0


def find_run(name: str, logs: Path) -> Run:
    """The run that a path, or a name under the logs folder, means.

    Raises:
        RunError: `no-run` names the nearest run; or what `open_run` raises.
    """
    direct = _home_of(name)
    if name and _exists(direct):
        _refuse_logs(direct)
        return open_run(direct)
    if name and not direct.is_absolute() and _exists(logs / direct):
        return open_run(logs / direct)
    near = difflib.get_close_matches(direct.name, run_names(logs), n=1)
    hint = f"did you mean '{near[0]}'?" if near else "`traceml runs` lists what there is."
    shown = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}…"
    raise RunError(f"No run '{shown}', neither as a path nor in '{logs}'; {hint}", slug="no-run")


def _home_of(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # `~somebody`, whom nobody knows
        return Path(name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have: too long, a loop of links, a NUL
        return False


def _refuse_logs(folder: Path) -> None:
    names = run_names(folder)
    if not names or (folder / MANIFEST_FILE).exists() or (folder / SUMMARY_FILE).exists():
        return
    held = f"{len(names)} runs" if len(names) > 1 else f"the run '{names[0]}'"
    message = (
        f"'{folder}' is no run, it holds {held}. `traceml runs --logs-dir {folder}` lists what is there, "
        f"`traceml view {folder / names[-1]}` shows one."
    )
    raise RunError(message, slug="no-run")


def run_names(logs: Path) -> list[str]:
    """The names of the run folders under a logs folder; none where it cannot be read."""
    try:
        return sorted(path.parent.name for path in logs.glob(f"*/{MANIFEST_FILE}"))
    except OSError:
        return []


def finished_report(run: Run) -> Report:
    """The run's newest report; what a crash left in the rings is brought home first, and the summary written.

    Raises:
        RunError: What reading the run raises.
    """
    if run.has_summary or run.is_running:
        return run.report()
    from traceml.collect.recover import recover  # noqa: PLC0415  # psutil and locks, for the one run in many that needs it

    is_recovered = recover(run.folder)
    report = run.report()
    if is_recovered and report.run.status != "running":
        _keep(run, report)
    return report


def card_for(stream: TextIO, report: Report) -> str:
    """The card as a stream can carry it: with plain bars where its encoding has no blocks."""
    return drawn_for(stream, partial(card, report, cwd=str(Path.cwd())))


def _keep(run: Run, report: Report) -> None:
    try:
        write_summary(run.folder, report)
        write_private(run.folder / CARD_FILE, card(report))
    except OSError as error:
        tell(f"traceml: the summary cannot be kept in '{run.folder}' ({error.strerror}).\n")
