"""Sets the ranks side by side: the median, the worst, a row each, and what they lose to one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.ground import undecided
from traceml.diagnosis.thresholds import LIMITS
from traceml.report.contract import PhaseRanks, RankRow, RanksInfo, SyncInfo
from traceml.report.shares import ms
from traceml.schema import phases

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts

_NS_PER_MS: Final = 1e6
MAX_ROWS: Final = 16  # of by_rank


def ranks_of(facts: Facts) -> RanksInfo:
    """The median rank, the one with most own work, and rows: that one first, then the first ranks."""
    rank = facts.median_rank
    steady = [r for r in facts.ranks if r.num_steady]
    worst = max(steady, key=lambda one: _own_work_ms(facts, one)) if len(steady) > 1 else None
    ordered = ([worst] if worst else []) + [r for r in steady if r is not worst]
    return RanksInfo(
        median=rank.state.identity.rank if rank else None,
        worst=worst.state.identity.rank if worst else None,
        by_rank=tuple(_row(facts, r) for r in ordered[:MAX_ROWS]),
        phases=_phases(steady) if worst else {},
        sync=_sync(facts),
    )


def _own_work_ms(facts: Facts, rank: RankFacts) -> float:
    """As the rank's row says it: by the ledger where that knows the rank."""
    own_ms, _, _ = _ledger_values(facts, rank.state.identity.rank)
    if own_ms is not None:
        return own_ms
    return (rank.total_ns - (rank.phase_ns(phases.SYNC) or 0)) / rank.num_steady / _NS_PER_MS


def _row(facts: Facts, rank: RankFacts) -> RankRow:
    number = rank.state.identity.rank
    means = {name: ms(rank.mean_ns(name)) for name in _names(rank)}
    own, gain, last_pct = _ledger_values(facts, number)
    held = next((memory.allocated.maximum for memory in facts.memory if memory.rank == number), None)
    return RankRow(
        number,
        rank.num_steady,
        ms(rank.period.mean),
        means,
        own_ms=own,
        gain_ms=gain,
        last_pct=last_pct,
        memory_bytes=held if facts.world_size > 1 else None,
    )


def _ledger_values(facts: Facts, rank: int) -> tuple[Optional[float], Optional[float], Optional[float]]:
    whole = facts.ledger.whole if facts.ledger else None
    if whole is None or rank not in whole.ranks:
        return None, None, None
    sums = whole.by_rank[whole.ranks.index(rank)]
    last_pct = round(100 * sums.num_last / whole.num_units, 1)
    return ms(sums.own.total / whole.num_steps), ms(sums.gain.total / whole.num_steps), last_pct


def _names(rank: RankFacts) -> tuple[str, ...]:
    regions = sorted(name for name in rank.phases if name.startswith(phases.REGION_PREFIX))
    return (*phases.PHASES, *regions)


def _phases(ranks: list[RankFacts]) -> dict[str, PhaseRanks]:
    """Each phase that any rank had: the lower median of the ranks' means, and the largest one."""
    found = {}
    for name in dict.fromkeys(name for rank in ranks for name in _names(rank)):
        known = [(ns, rank.state.identity.rank) for rank in ranks for ns in [rank.mean_ns(name)] if ns is not None]
        if not known or not any(ns for ns, _ in known):
            continue
        ordered = sorted(known)
        worst_ns, worst = max(known, key=lambda item: item[0])
        found[name] = PhaseRanks(ms(ordered[(len(ordered) - 1) // 2][0]), ms(worst_ns), worst)
    return found


def _sync(facts: Facts) -> Optional[SyncInfo]:
    ledger = facts.ledger
    if facts.world_size < 2 or ledger is None:  # noqa: PLR2004  # several ranks
        return None
    reason, whole = undecided(facts, LIMITS), ledger.whole
    if whole is None:
        return SyncInfo(0, 0, 0.0, 0.0, ledger.num_unaligned, reason)
    lost, transfer = (ms(amount.total / whole.num_steps) or 0.0 for amount in (whole.lost, whole.transfer))
    return SyncInfo(whole.num_units, whole.num_steps, lost, transfer, ledger.num_unaligned, reason)
