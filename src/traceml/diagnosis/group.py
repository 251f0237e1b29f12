"""Judges whether several ranks are always behind the others, in one phase, and what all would win if they were not."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from statistics import median
from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.core_waits import core_wait_note
from traceml.diagnosis.finding import Evidence, Finding
from traceml.diagnosis.ground import judged_rank, undecided
from traceml.diagnosis.ledger_price import UnitCost, impact_of, unit_cost
from traceml.diagnosis.luck import chance_of_last, clumping
from traceml.diagnosis.price import NS_PER_MS, severity_of
from traceml.diagnosis.rank_advice import advice_for
from traceml.diagnosis.sentences import place_of
from traceml.schema import units
from traceml.schema.phases import SYNC, label
from traceml.schema.syncs import Amount

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, LedgerFacts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds
    from traceml.schema.syncs import UnitSums

_MIN_RANKS: Final = 3  # of two, one is behind the other
_RULE: Final = (
    "Several ranks make all others wait, always the same ones: without them every step would be at least 3 % shorter, "
    "surely, in one phase."
)


@dataclass(frozen=True)
class _Behind:
    """The ranks that are behind, by their places in the ledger, and the phase all of them are behind in."""

    places: tuple[int, ...]
    phase: str
    coverage: float
    excess_ns: float  # a step, of the one that has least


def group_behind(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """Several ranks make all others wait, always the same ones, in the same phase: a STRAGGLER with several ranks.

    They are compared with the faster ranks, however few. What holds of one holds of all of them together: the lower end
    of what all would win, last beyond luck, 60 % of what each of them does more in the one phase; and each is behind by
    at least half of what the slowest is.
    """
    judged, ledger = judged_rank(facts, limits), facts.ledger
    if judged is None or ledger is None or ledger.whole is None or undecided(facts, limits):
        return None
    whole = ledger.whole
    if whole.num_units < limits.min_units or len(whole.ranks) < _MIN_RANKS:
        return None
    places = _slower(whole, limits)
    behind = _behind(facts, whole, places, limits) if len(places) > 1 else None
    if behind is None:
        return None
    cost = unit_cost(ledger, judged, lambda chunk: _gain(chunk, places))
    luck = _luck(ledger, places)
    if luck >= limits.last_by_luck or cost.low_share < limits.straggler_share or cost.share >= 1:
        return None
    ranks = tuple(whole.ranks[at] for at in places)
    if any(core_wait_note(facts, rank, behind.excess_ns, limits) for rank in ranks):
        return None
    return _finding(facts, judged, behind, cost, luck, limits)


def _finding(
    facts: Facts, judged: RankFacts, behind: _Behind, cost: UnitCost, luck: float, limits: Thresholds
) -> Finding:
    assert facts.ledger is not None
    whole = facts.ledger.whole
    assert whole is not None
    ranks = tuple(whole.ranks[at] for at in behind.places)
    others = [rank for rank in whole.ranks if rank not in ranks]
    before = f"rank {others[0]}" if len(others) == 1 else "the others"
    impact = impact_of(cost, whole, facts)
    where = place_of(behind.phase)
    num_last = sum(whole.by_rank[at].num_last for at in behind.places)
    return Finding(
        diagnosis="STRAGGLER",
        severity=severity_of(impact, judged, limits),
        summary=f"Ranks {units.listed(ranks)} are {units.duration(impact.ms * NS_PER_MS)} behind {before} {where}.",
        why=f"{units.clean(label(behind.phase))} takes each of them at least {units.duration(behind.excess_ns)} a step "
        f"more than {before}, {units.percent(behind.coverage)} of all it does more; one of them came last in "
        f"{units.count(num_last)} of {units.count(whole.num_units)} synchronisations",
        next=advice_for(facts, ranks, behind.phase),
        rule=_RULE,
        evidence=(
            Evidence("gain, lower end", 100 * cost.low_share, 100 * limits.straggler_share, "%"),
            Evidence("synchronisations", float(whole.num_units), float(limits.min_units), "units"),
            Evidence("last by luck", 100 * luck, 100 * limits.last_by_luck, "%"),
            Evidence("excess in one phase", 100 * behind.coverage, 100 * limits.excess_coverage, "%"),
        ),
        ranks=ranks,
        phases=(behind.phase,),
        impact=impact,
    )


def _slower(whole: UnitSums, limits: Thresholds) -> tuple[int, ...]:
    """The places of the ranks above the widest gap in what they do, where each is about as far above it."""
    own = [rank.own.total for rank in whole.by_rank]
    order = sorted(range(len(own)), key=lambda at: own[at])
    _, cut = max((own[above] - own[below], at + 1) for at, (below, above) in enumerate(zip(order, order[1:])))
    fast = median([own[at] for at in order[:cut]])
    slower = order[cut:]
    if own[slower[0]] - fast < limits.alike_share * (own[slower[-1]] - fast):
        return ()
    return tuple(sorted(slower))


def _behind(facts: Facts, whole: UnitSums, places: tuple[int, ...], limits: Thresholds) -> Optional[_Behind]:
    """The phase in which all of them do more than the faster ones; None where there is no such one."""
    known = {rank.state.identity.rank: rank for rank in facts.ranks if rank.num_steady}
    if any(rank not in known for rank in whole.ranks):
        return None
    names = tuple(name for name in whole.phases if name != SYNC)
    fast = [known[rank] for at, rank in enumerate(whole.ranks) if at not in places]
    usual = {name: median([rank.mean_ns(name) or 0.0 for rank in fast]) for name in names}
    found = []
    for at in places:
        rank = known[whole.ranks[at]]
        excess = {name: (rank.mean_ns(name) or 0.0) - usual[name] for name in names}
        total = sum(ns for ns in excess.values() if ns > 0)
        phase = max(excess, key=lambda name: excess[name])
        if total <= 0 or excess[phase] < limits.excess_coverage * total:
            return None
        found.append((phase, excess[phase] / total, excess[phase]))
    if len({phase for phase, _, _ in found}) > 1:
        return None
    return _Behind(places, found[0][0], min(share for _, share, _ in found), min(ns for _, _, ns in found))


def _gain(chunk: UnitSums, places: tuple[int, ...]) -> Amount:
    """What all would win if these ranks were like the slowest of the others; of a chunk of many units, their means."""
    slow = max(chunk.by_rank[at].own.total for at in places)
    fast = max(rank.own.total for at, rank in enumerate(chunk.by_rank) if at not in places)
    return Amount.of(max(0, slow - fast))


def _luck(ledger: LedgerFacts, places: tuple[int, ...]) -> float:
    """The chance that any as many equal ranks share so many of the last places."""
    whole = ledger.whole
    assert whole is not None

    def num_last(chunk: UnitSums) -> int:
        return sum(chunk.by_rank[at].num_last for at in places)

    clumps = clumping([(num_last(chunk), chunk.num_units) for chunk in ledger.chunks])
    num_ranks = len(whole.ranks)
    chance = chance_of_last(
        round(num_last(whole) / clumps), round(whole.num_units / clumps), num_ranks, num_named=len(places)
    )
    return min(1.0, chance * comb(num_ranks, len(places)))
