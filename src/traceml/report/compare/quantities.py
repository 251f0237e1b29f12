"""Sets side by side what stands beside the step: speed, memory, start."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING, Callable, Final, Mapping, Optional, Sequence

from traceml.report.compare.contract import Quantity
from traceml.report.shares import rounded

if TYPE_CHECKING:
    from traceml.report.contract import Report

_PERCENT: Final = 100.0
_Known = Sequence[float]


def quantities_of(before: Sequence[Report], after: Sequence[Report]) -> tuple[Quantity, ...]:
    """Every quantity that a side knows; of repeats the median, of rates what their steps come to together."""
    found = []
    for name, of in _QUANTITIES.items():
        fold = _together if name.endswith("_per_s") else median
        one, two = (_folded(side, of, fold) for side in (before, after))
        if one is not None or two is not None:
            found.append(Quantity(name, one, two, _change_pct(one, two)))
    return tuple(found)


def _folded(
    reports: Sequence[Report], of: Callable[[Report], Optional[float]], fold: Callable[[_Known], float]
) -> Optional[float]:
    known = [value for value in (of(report) for report in reports) if value is not None]
    return fold(known) if known else None


def _together(rates: _Known) -> float:
    """The rate of the mean step of all: a median, or a mean, of rates would contradict the waterfall's step."""
    if len(rates) == 1 or min(rates) <= 0:
        return median(rates)
    return rounded(1 / fmean(1 / rate for rate in rates))


def _change_pct(before: Optional[float], after: Optional[float]) -> Optional[float]:
    if before is None or after is None or before <= 0:
        return None
    pct = _PERCENT * (after / before - 1)
    return rounded(pct) if math.isfinite(pct) else None


def _peak_bytes(report: Report) -> Optional[float]:
    memory = report.step_memory
    found = [info.max for info in (memory.peak_bytes, memory.allocated_bytes) if info is not None]
    return next((value for value in found if value is not None), None)


_QUANTITIES: Final[Mapping[str, Callable[[Report], Optional[float]]]] = {
    "samples_per_s": lambda r: r.throughput.samples_per_s,
    "tokens_per_s": lambda r: r.throughput.tokens_per_s,
    "steps_per_s": lambda r: r.throughput.steps_per_s,
    "held_bytes": lambda r: r.step_memory.allocated_bytes.p50 if r.step_memory.allocated_bytes else None,
    "peak_bytes": _peak_bytes,
    "startup_s": lambda r: r.run.startup_s,
}
