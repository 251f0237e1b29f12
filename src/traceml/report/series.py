"""Hands out a metric over the steps as points a face can draw: minimum, mean and maximum each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Mapping, NamedTuple, Optional, Sequence

from traceml.report.shares import rounded

if TYPE_CHECKING:
    from traceml.store.reader import StoreReader

NUM_POINTS: Final = 300
_NS_PER_MS: Final = 1e6
_BYTES: Final = frozenset({"allocated", "reserved", "peak", "rss"})
_PERCENT: Final = "cpu"


class Point(NamedTuple):
    """Steps `first_step` to `last_step`, and the metric over them; a step that had none of a phase counts as 0."""

    first_step: int
    last_step: int
    minimum: float
    mean: float
    maximum: float


@dataclass(frozen=True)
class Series:
    """A metric over the steps; `points` by rank, in step order. A rank in which it was never measured has none."""

    metric: str
    unit: str  # "ms" | "bytes" | "%"
    points: Mapping[int, tuple[Point, ...]]


def read_series(
    reader: StoreReader,
    metric: str,
    *,
    ranks: Optional[Sequence[int]] = None,
    window: Optional[tuple[int, int]] = None,
    num_points: int = NUM_POINTS,
) -> Series:
    """The series of a metric, at most about `num_points` a rank, from the coarsest level that suffices.

    Args:
        reader: The run's store.
        metric: `period`, a phase's name or `region:<name>` (ms), on the host's clock, or behind `device:` on the
            device's; `run_ahead` (ms, the upper bound); `own` (a rank's work between two synchronisations), `gain`,
            `lost` and `transfer` (those two of all ranks, under rank 0; ms); `allocated`, `reserved`, `peak`, `rss`
            (bytes); `cpu` (percent of one core).
        ranks: Those to speak of; None: all.
        window: First and last step; None: all.
        num_points: How many points are wanted.

    Raises:
        UsageError: `unknown-metric`.
        RunError: What the store raises.
    """
    first, last = window or (None, None)
    found = reader.series(metric, ranks=ranks, first=first, last=last, num_points=num_points)
    unit = "bytes" if metric in _BYTES else "%" if metric == _PERCENT else "ms"
    scale = _NS_PER_MS if unit == "ms" else 1.0
    points = {
        rank: tuple(
            Point(p.first_step, p.last_step, p.minimum / scale, rounded(p.mean / scale), p.maximum / scale) for p in row
        )
        for rank, row in found.items()
    }
    return Series(metric, unit, points)
