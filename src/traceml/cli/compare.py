"""Compares runs: where the time moved, and, as a gate, whether it may."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from traceml import settings
from traceml.cli.speaking import answer, drawn_for, tell
from traceml.cli.view import find_run, finished_report
from traceml.report.compare.comparison import compare as compare_runs
from traceml.report.compare.schema import comparison_text
from traceml.views.text.comparison import comparison_card
from traceml.views.text.markdown import comparison_markdown
from traceml.wire.paths import usable

if TYPE_CHECKING:
    from traceml.cli.arguments import CompareArguments
    from traceml.report.compare.contract import Comparison

FINE: Final = 0
REGRESSED: Final = 1
OPEN: Final = 3  # undecided or incomparable


def compare(asked: CompareArguments) -> int:
    """`traceml compare`: the comparison on stdout.

    Returns:
        0; with `--fail-on regression` 1 for steps that take longer, 3 where it cannot be told.

    Raises:
        RunError: A run that cannot be read or has no steps.
    """
    chosen = settings.resolve(command_line=asked.options)
    for complaint in chosen.complaints:
        tell(f"{complaint}\n")
    logs = Path(usable(chosen.logs_dir))
    before, after = ([finished_report(find_run(name, logs)) for name in side] for side in (asked.before, asked.after))
    found = compare_runs(before, after, margin=asked.margin)
    answer(_text(found, asked.shape))
    return _code(found) if asked.fails_on_regression else FINE


def _text(found: Comparison, shape: str) -> str:
    if shape == "json":
        return comparison_text(found)
    if shape == "markdown":
        return comparison_markdown(found)
    return drawn_for(sys.stdout, partial(comparison_card, found))


def _code(found: Comparison) -> int:
    if found.verdict.is_slower:
        return REGRESSED
    return OPEN if found.verdict.is_open else FINE
