"""Shows a run full screen, from another terminal than the training's: live, or after its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, Optional

from traceml import settings
from traceml.cli.speaking import tell
from traceml.cli.view import find_run, finished_report, run_names
from traceml.errors import RunError, UsageError
from traceml.launch.face import is_dumb, is_known
from traceml.launch.terminal.asking import ask_background
from traceml.launch.terminal.keys import colours_of
from traceml.report.run import Run, open_run
from traceml.views.terminal.palette import Palette
from traceml.wire.paths import usable

if TYPE_CHECKING:
    from traceml.cli.arguments import AttachArguments


def attach(asked: AttachArguments) -> int:
    """`traceml attach [RUN]`: 0 when the person closes it. Nothing here reaches the training.

    Raises:
        UsageError: `no-terminal`.
        RunError: There is no such run, or it is damaged.
    """
    chosen = settings.resolve(command_line=asked.options)
    for complaint in chosen.complaints:
        tell(f"{complaint}\n")
    logs = Path(usable(chosen.logs_dir))
    run = find_run(asked.run, logs) if asked.run is not None else newest_run(logs)
    refuse_without_terminal(run, os.environ)
    show_run(run)
    return 0


def show_run(run: Run) -> None:
    """The full screen on this terminal, until the person closes it."""
    # Here, and nowhere before: it brings Textual.
    from traceml.views.terminal.app import show  # noqa: PLC0415

    palette = Palette(colours_of(os.environ), ask_background(os.environ))
    show(run, palette=palette, is_ascii="utf" not in (sys.stdout.encoding or "").lower(), bring_home=finished_report)


def newest_run(logs: Path) -> Run:
    """The newest running run of a logs folder, else the newest one.

    Raises:
        RunError: `no-run`: there is none that can be opened.
    """
    newest: Optional[Run] = None
    for run in _runs_of(logs):
        if run.is_running:
            return run
        newest = newest or run
    if newest is None:
        raise RunError(f"No runs in '{logs}'. Start one: traceml run train.py", slug="no-run")
    return newest


def _runs_of(logs: Path) -> list[Run]:
    """The newest first; a damaged one is passed over, for there are others."""
    found = []
    for name in run_names(logs):
        try:
            found.append(open_run(logs / name))
        except RunError:
            continue
    return sorted(found, key=lambda run: run.started_at or 0.0, reverse=True)


def refuse_without_terminal(run: Run, environ: Mapping[str, str]) -> None:
    """Says where else a run can be seen, when nobody could see it here.

    Raises:
        UsageError: `no-terminal`.
    """
    term = environ.get("TERM", "")
    if _is_terminal(0) and _is_terminal(1) and not is_dumb(term) and is_known(term):
        return
    message = (
        f"attach: stdin and stdout are no terminal that can be drawn on. `traceml view {run.folder}` prints the card."
    )
    raise UsageError(message, slug="no-terminal")


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False
