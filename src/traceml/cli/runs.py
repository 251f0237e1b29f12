"""Lists the runs of a logs folder."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from traceml import settings
from traceml.cli.speaking import answer, tell
from traceml.cli.view import run_names
from traceml.errors import RunError
from traceml.report.run import open_run
from traceml.views.text.columns import to_ascii
from traceml.views.text.table import WIDTH, RunRow, runs_table
from traceml.wire.paths import usable

if TYPE_CHECKING:
    from traceml.cli.arguments import RunsArguments

_UNCUT: Final = 1000  # columns where no terminal cuts the lines: names stay whole for grep and awk


def runs(asked: RunsArguments) -> int:
    """`traceml runs`: one line a run on stdout, the newest first; a run that cannot be read says why."""
    chosen = settings.resolve(command_line=asked.options)
    for complaint in chosen.complaints:
        tell(f"{complaint}\n")
    logs = Path(usable(chosen.logs_dir))
    rows = [_row(logs / name) for name in run_names(logs)]
    if not rows:
        tell(f"No runs in '{logs}'. Start one: traceml run train.py\n")
        return 0
    width = max(WIDTH, shutil.get_terminal_size((WIDTH, 0)).columns) if sys.stdout.isatty() else _UNCUT
    text = runs_table(rows, now=time.time(), width=width)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        text = to_ascii(text)
    answer(text)
    return 0


def _row(folder: Path) -> RunRow:
    started_at = None
    try:
        run = open_run(folder)
        started_at = run.started_at
        report = run.report()
    except RunError as error:
        return RunRow(folder.name, started_at, trouble=str(error))
    return RunRow(
        name=folder.name,
        started_at=started_at,
        status=report.run.status,
        steps=report.run.steps,
        diagnosis=report.verdict.diagnosis,
        duration_s=report.run.duration_s,
    )
