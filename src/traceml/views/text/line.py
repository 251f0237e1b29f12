"""Says a run's verdict, or where it is now, in one plain line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from traceml.schema import units
from traceml.views.text import columns
from traceml.views.text.ranks import stall_in_words
from traceml.views.text.words import ending, headline, millis

if TYPE_CHECKING:
    from traceml.report.contract import Report

WIDTH: Final = 80
_STALLED: Final = 160  # who hangs, and who waits, whole


def verdict_line(report: Report, *, width: int = WIDTH) -> str:
    """`TraceML: INPUT BOUND (critical): 44 % of each step waits for data.`, at most `width` columns, no newline."""
    ended = ending(report.run)
    return _cut(f"TraceML: {f'{ended}; ' if ended else ''}{headline(report)}", width)


def progress_line(report: Report, *, width: int = WIDTH) -> str:
    """`TraceML: step 1,204 of 5,000 | 81.0 ms a step | INPUT BOUND (critical), 44 %`, at most `width` columns."""
    run, typical = report.run, report.step_time.period_ms.p50
    if not run.steps:
        return "TraceML: no step yet"
    of = f" of {units.count(run.total_steps)}" if run.total_steps else ""
    told = [f"TraceML: step {units.count(run.last_step or run.steps)}{of}"]
    if typical is not None:
        told.append(f"{millis(typical)} a step")
    stalled = stall_in_words(report)
    if stalled:
        return _cut(f"TraceML: {stalled}", max(width, _STALLED))
    return _cut(" | ".join([*told, _verdict(report)]), width)


def _verdict(report: Report) -> str:
    """The name and the price where there is one; the sentence else, which then says what is awaited."""
    verdict = report.verdict
    if verdict.impact is None:
        return headline(report)
    severity = "" if verdict.severity == "info" else f" ({columns.clean(verdict.severity)})"
    share = units.percent(verdict.impact.pct / 100)
    return f"{columns.clean(verdict.diagnosis).replace('_', ' ')}{severity}, {share} of the time"


def _cut(text: str, width: int) -> str:
    if columns.width_of(text) <= width:
        return text
    return columns.head(text, width - 3).rstrip() + "..."
