"""Says which rank's own work changed the step, and in which phase: the waterfall shows a rank that waits for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Optional, Sequence

from traceml.analysis.between import Distance, of_repeats
from traceml.report.compare.contract import RankChange
from traceml.report.shares import rounded
from traceml.schema import phases

if TYPE_CHECKING:
    from traceml.report.compare.limits import CompareLimits
    from traceml.report.contract import RankRow, Report


@dataclass(frozen=True)
class RankPhase:
    """The one phase of one rank that holds most of what the step changed by; ms a step."""

    rank: int
    phase: str
    change_ms: float


def rank_behind(
    before: Sequence[Report],
    after: Sequence[Report],
    *,
    step_ms: tuple[float, float],
    drift: float,
    limits: CompareLimits,
) -> Optional[RankPhase]:
    """The rank that the others wait for more (or less) than before, and its phase; None: it is no single rank's.

    Of a step that takes longer it is the worst rank after, of one that takes less time the worst one before. Its phase
    changed beyond chance, by most of what the step changed by, and more than any other phase of that rank.

    Args:
        before: One side.
        after: The other.
        step_ms: The mean step of both sides.
        drift: The share (0..1) of the step that is allowed for drift.
        limits: What is most of a change.
    """
    whole = step_ms[1] - step_ms[0]
    rank = _most_often_worst(after if whole > 0 else before)
    if rank is None or not whole or any(report.run.world_size < 2 for report in (*before, *after)):  # noqa: PLR2004
        return None
    rows = [[_row_of(report, rank) for report in side] for side in (before, after)]
    if any(row is None for side in rows for row in side):
        return None
    known = [[row for row in side if row is not None] for side in rows]
    found = {}
    for phase in dict.fromkeys(name for side in known for row in side for name in row.phases_ms):
        distance = None if phase == phases.SYNC else _distance(known, phase)
        if distance is not None:
            found[phase] = distance.widened(drift * max(step_ms))
    most = max(found, key=lambda name: found[name].estimate / whole, default=None)
    if most is None or found[most].estimate / whole < limits.culprit_share:
        return None
    is_sure = found[most].low > 0 or found[most].high < 0
    return RankPhase(rank, most, rounded(found[most].estimate)) if is_sure else None


def _most_often_worst(reports: Sequence[Report]) -> Optional[int]:
    """The rank that is the worst one in most runs of a side; None: it changes from run to run."""
    counts = Counter(report.step_time.ranks.worst for report in reports)
    rank, times = counts.most_common(1)[0]
    return rank if 2 * times > len(reports) else None


def _row_of(report: Report, rank: int) -> Optional[RankRow]:
    return next((row for row in report.step_time.ranks.by_rank if row.rank == rank), None)


def _distance(rows: Sequence[Sequence[RankRow]], phase: str) -> Optional[Distance]:
    """The distance of a phase's means; a phase that a small file left out was small; None: unmeasured somewhere."""
    times: list[list[float]] = []
    for side in rows:
        values = [row.phases_ms.get(phase, 0.0) for row in side]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        times.append(known)
    if min(len(side) for side in times) > 1:
        return of_repeats(times[0], times[1])
    change = fmean(times[1]) - fmean(times[0])
    return Distance(change, change, change)


def rank_changes(before: Report, after: Report) -> tuple[RankChange, ...]:
    """The median and the worst rank of two runs; nothing of a single rank."""
    found = []
    for which in ("median", "worst"):
        one, two = _own_work(before, which), _own_work(after, which)
        if one and two and before.run.world_size > 1:
            found.append(RankChange(which, one[0], two[0], one[1], two[1]))
    return tuple(found)


def _own_work(report: Report, which: str) -> Optional[tuple[int, float]]:
    ranks = report.step_time.ranks
    rank = ranks.median if which == "median" else ranks.worst
    row = next((row for row in ranks.by_rank if row.rank == rank), None)
    if row is None or row.period_ms is None:
        return None
    return row.rank, rounded(row.period_ms - (row.phases_ms.get(phases.SYNC) or 0.0))
