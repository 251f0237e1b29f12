"""Says what a verdict's trouble costs: how much faster it would be without, and the time of this run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from traceml.schema import units
from traceml.views.text.words import millis, total

if TYPE_CHECKING:
    from traceml.report.contract import ImpactInfo, Report

_LEAST_SPEEDUP: Final = 1.1  # below, the time itself says more than "1.0 times as fast"
_UPPER_BOUND: Final = frozenset({"COMM_BOUND", "HOST_BOUND"})  # their prices are


def price(report: Report) -> str:
    """`without it 1.8 times as fast: 2 min 58 s of this run [2:50 to 3:05]`; nothing where there is no price."""
    impact = report.verdict.impact
    return "" if impact is None else short_price(report) + _of_this_run(report, impact)


def short_price(report: Report) -> str:
    """`without it 1.8 times as fast`, or `6.20 ms a step` where that says more."""
    impact = report.verdict.impact
    if impact is None:
        return ""
    most = "at most " if report.verdict.diagnosis in _UPPER_BOUND else ""
    if impact.speedup >= _LEAST_SPEEDUP:
        return f"without it {most}{units.significant(impact.speedup, 2)} times as fast"
    return f"{most}{millis(impact.ms)} a step"


def _of_this_run(report: Report, impact: ImpactInfo) -> str:
    run = report.run
    num_steady = impact.steps or run.steps - run.warmup_steps - run.failed_steps - run.halted_steps
    if num_steady < 1:
        return ""
    so_far = "so far" if run.status == "running" else "of this run"
    interval = _interval(impact.low_ms * num_steady, impact.high_ms * num_steady)
    return f": {total(impact.ms * num_steady)} {so_far}{interval}"


def _interval(low_ms: float, high_ms: float) -> str:
    """` [5.2 to 6.1 s]`, ` [2:50 to 3:05]`, ` [58 s to 1 min 2 s]`; nothing when both ends read the same."""
    low, high = total(low_ms), total(high_ms)
    if low == high:
        return ""
    if " min" in low and " min" in high and " h" not in high:
        return f" [{_clock(low_ms)} to {_clock(high_ms)}]"
    number, _, unit = low.partition(" ")
    return f" [{number if high.partition(' ')[2] == unit else low} to {high}]"


def _clock(ms: float) -> str:
    minutes, seconds_left = divmod(round(ms / 1000), 60)
    return f"{minutes}:{seconds_left:02d}"
