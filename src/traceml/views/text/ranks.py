"""Says on the card how the ranks compare: the median and the busiest, where they differ, what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator, Mapping, Optional, Sequence

from traceml.schema import phases, stalls, units
from traceml.views.text.columns import clean
from traceml.views.text.words import millis, seconds

if TYPE_CHECKING:
    from traceml.report.contract import PhaseRanks, RankRow, Report, SyncInfo

_NOTABLE: Final = 0.1  # of the period: a phase that differs less between the ranks is not told
_EARLY: Final = "before its first step"
_MAX_APART: Final = 2
_PAIR: Final = 2  # ranks, of which neither is the median


def ranks_in_words(report: Report) -> Iterator[str]:
    """At most three lines; none of a run with one rank."""
    ranks = report.step_time.ranks
    if report.run.world_size < 2 or ranks.worst is None or ranks.median is None:  # noqa: PLR2004  # several ranks
        return
    rows = {row.rank: row for row in ranks.by_rank}
    median, worst = _own_work(rows.get(ranks.median)), _own_work(rows.get(ranks.worst))
    middle = "" if report.run.world_size == _PAIR else ", the median"
    yield f"the bars show rank {ranks.median}{middle}{median} · rank {ranks.worst} has the most work{worst}"
    period_ms = report.step_time.period_ms.mean or 0.0
    others = _others_of_two(report)
    apart = [_apart(name, phase, others) for name, phase in ranks.phases.items() if _is_apart(name, phase, period_ms)]
    if apart:
        yield " · ".join(apart[:_MAX_APART])
    if ranks.sync is not None and ranks.sync.units:
        yield _waits(ranks.sync)


def restarts_in_words(report: Report) -> str:
    """That this is not the first attempt, and who died first in the one before; nothing without a restart."""
    if not report.attempts:
        return ""
    last = report.attempts[-1]
    times = "1 restart" if report.run.restarts == 1 else f"{units.count(report.run.restarts)} restarts"
    is_later = last.number >= report.run.restarts  # those before this attempt are counted from 0 on
    which, rest = ("the last attempt", "; the rest is of the one before") if is_later else ("the attempt before", "")
    if not last.deaths:
        return f"{times}: {which} ended {f'after step {units.count(last.steps)}' if last.steps else _EARLY}{rest}"
    first = last.deaths[0]
    phase = _label(first.phase)
    where = f"in {phase} of step {units.count(first.step)}" if last.steps else _EARLY
    return f"{times}: in {which} rank {first.rank} died first, {where} ({clean(first.how)}){rest}"


def deaths_in_words(report: Report) -> str:
    """Who died first of the last attempt's ranks, in which step and phase, and who then; nothing where nobody did."""
    first = next((event for event in report.events if event.kind == stalls.FIRST_DEATH), None)
    if first is None:
        return ""
    others = sorted(event.rank for event in report.events if event.kind == stalls.DEATH)
    then = f"; then {plural_ranks(others)}" if others else ""
    return f"first {clean(first.text)}, at step {units.count(first.step)}{then}"


def plural_ranks(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 0, 1 and 3`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {units.listed(ranks)}"


def stall_in_words(report: Report) -> str:
    """While running: whom the others wait for, since when and at which step; nothing while all goes on."""
    live = report.run.live or {}
    told, since, step = live.get("told"), live.get("since_s"), live.get("step")
    if report.run.status != "running" or not isinstance(told, str) or not told:
        return ""
    who, _, rest = clean(told).partition("; ")
    age = f" since {seconds(since)}" if isinstance(since, (int, float)) and since >= 0 else ""
    at = f" at step {units.count(step)}" if isinstance(step, int) else ""
    alarm = "HANG: " if live.get("stall") == stalls.HANG else ""
    return f"{alarm}{who}{age}{at}{f'; {rest}' if rest else ''}"


def _label(name: str) -> str:
    known = name in phases.LABELS or name.startswith(phases.REGION_PREFIX)
    return clean(phases.label(name) if known else name) or "?"


def _own_work(row: Optional[RankRow]) -> str:
    if row is None or row.period_ms is None:
        return ""
    own_ms = row.own_ms if row.own_ms is not None else row.period_ms - (row.phases_ms.get(phases.SYNC) or 0.0)
    return f" ({millis(own_ms)} of its own)"


def _is_apart(name: str, phase: PhaseRanks, period_ms: float) -> bool:
    if name == phases.SYNC or phase.worst_ms is None or phase.median_ms is None:
        return False  # who waits most is nobody's fault
    return phase.worst_ms - phase.median_ms >= _NOTABLE * period_ms > 0


def _others_of_two(report: Report) -> dict[Optional[int], int]:
    """Of each of two ranks the other one: the lower of two values is that one's, and no median."""
    ranks = [row.rank for row in report.step_time.ranks.by_rank]
    return dict(zip(ranks, reversed(ranks))) if report.run.world_size == len(ranks) == _PAIR else {}


def _apart(name: str, phase: PhaseRanks, others: Mapping[Optional[int], int]) -> str:
    assert phase.worst_ms is not None
    assert phase.median_ms is not None
    median, worst = units.significant(phase.median_ms), units.significant(phase.worst_ms)
    other = others.get(phase.worst)
    return f"{_label(name)} {median} ms{'' if other is None else f' on rank {other}'}, on rank {phase.worst} {worst} ms"


def _waits(sync: SyncInfo) -> str:
    lost = "" if sync.undecided else f"they wait {millis(sync.lost_ms)} a step for the last of them, "
    return f"{lost}{millis(sync.transfer_ms)} for communication itself"
