"""Says how fast the ranks go where they do not go together: groups of their own advance at paces of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from traceml.schema import units

if TYPE_CHECKING:
    from traceml.report.contract import Report

_MS_PER_S: Final = 1e3
_TOGETHER: Final = 1.1  # of neighbours by their pace; ranks that synchronise differ by a thousandth
_APART: Final = 1.25
_MAX_TOLD: Final = 4


def groups_of(report: Report) -> list[tuple[float, list[int]]]:
    """Steps a second and ranks of each group, the fastest first; empty where all ranks go at one pace.

    Of the ranks that have a row in the report: at most 16.
    """
    rows = report.step_time.ranks.by_rank
    paced = sorted((row.period_ms, row.rank) for row in rows if row.period_ms and row.period_ms > 0)
    if report.run.world_size < 2 or not paced or paced[-1][0] < _APART * paced[0][0]:  # noqa: PLR2004  # several
        return []
    groups: list[list[tuple[float, int]]] = []
    for period_ms, rank in paced:
        if groups and period_ms < _TOGETHER * groups[-1][-1][0]:
            groups[-1].append((period_ms, rank))
        else:
            groups.append([(period_ms, rank)])
    return [(_MS_PER_S * len(group) / sum(ms for ms, _ in group), sorted(r for _, r in group)) for group in groups]


def pace_in_words(report: Report, *, is_short: bool = False) -> str:
    """`40.1 steps/s`; of groups `10.2 to 40.1 steps/s`, and which ranks go how fast. Nothing where it is not known."""
    rate = report.throughput.steps_per_s
    if rate is None:
        return ""
    groups = groups_of(report)
    if not groups:
        return f"{units.significant(rate)} steps/s"
    span = f"{units.significant(groups[-1][0])} to {units.significant(groups[0][0])} steps/s"
    if is_short or len(groups) > _MAX_TOLD:
        return span
    each = ", ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {units.listed(ranks)} {units.significant(pace)}" for pace, ranks in groups
    )
    return f"{span}: {each}"
