"""Judges whether one rank makes all others wait, in which phase, and what they would win without."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.core_waits import core_wait_note
from traceml.diagnosis.finding import INFO, Evidence, Finding
from traceml.diagnosis.ground import judged_rank, undecided
from traceml.diagnosis.group import group_behind
from traceml.diagnosis.ledger_price import UnitCost, impact_of, unit_cost
from traceml.diagnosis.luck import chance_of_last, clumping
from traceml.diagnosis.price import NS_PER_MS, rule_text, severity_of
from traceml.diagnosis.rank_advice import advice_for
from traceml.diagnosis.sentences import part_of, place_of, share_in_words
from traceml.schema import units
from traceml.schema.phases import label

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, LedgerFacts, RankFacts
    from traceml.diagnosis.finding import Impact
    from traceml.diagnosis.thresholds import Thresholds
    from traceml.schema.syncs import UnitSums

_PAIR: Final = 2
_MOST_UNITS: Final = 0.5
_NUM_NAMED: Final = 3
_NAMED_SHARE: Final = 0.1  # of what a rank does more; a smaller phase is not worth a word
_NEARLY_ALL: Final = 0.85  # "in forward" is said of that; of less "mostly in forward"


@dataclass(frozen=True)
class Late:
    """The rank that costs the others most: how often it is last, and what it has more of than the others' median."""

    rank: int
    at: int  # its place in the ledger's ranks
    judged: RankFacts
    whole: UnitSums
    cost: UnitCost
    num_last: int
    luck: float
    excess_ns: dict[str, float]  # a unit, by phase, those above 0, the largest first
    is_each: bool  # whether it is in most steps

    @property
    def coverage(self) -> float:
        """The share of the largest excess in all of them."""
        return self.covered(1)

    @property
    def phase(self) -> str:
        """The phase of the largest excess."""
        return next(iter(self.excess_ns))

    @property
    def total_ns(self) -> float:
        """What it does more, a step, in all phases."""
        return sum(self.excess_ns.values()) / self.cost.steps_a_unit

    def covered(self, number: int) -> float:
        """The share of the largest phases in all that it does more."""
        values = list(self.excess_ns.values())
        return sum(values[:number]) / sum(values) if values else 0.0

    def more_ns(self, phase: str) -> float:
        """What it does more in a phase, a step."""
        return self.excess_ns[phase] / self.cost.steps_a_unit


def straggler(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """One rank makes all others wait: without it every step would be at least 3 % shorter, surely, in one phase.

    What a rank does between two synchronisations is compared, over at least 20 of them. The lower end of the interval
    of what all would win counts. The rank must come last more often than by luck (1 in 10,000), and 60 % of what it
    does more than the others' median must be in one phase; or in two, in which it takes twice as long as they do, and
    it comes last nearly always. The price is a replay with this rank like the others.

    Several ranks that are always behind in the same phase are named together, compared with the faster ones.

    Next: fits the phase: its loader, its batches, its device, or what only this rank does between the steps.
    """
    single, several = _single(facts, limits), group_behind(facts, limits)
    if single is None or several is None:
        return several or single
    return several if _ms(several) >= limits.clearly_more * _ms(single) else single


def _ms(finding: Finding) -> float:
    return finding.impact.ms if finding.impact is not None else 0.0


def _single(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    late = late_rank(facts, limits)
    named = _phases(late, facts, limits) if late is not None else ()
    if late is None or not named or _core_wait(late, facts, limits):
        return None
    impact = impact_of(late.cost, late.whole, facts)
    return Finding(
        diagnosis="STRAGGLER",
        severity=severity_of(impact, late.judged, limits),
        summary=_summary(late, impact, named),
        why=_why(late),
        next=advice_for(facts, (late.rank,), late.phase),
        rule=rule_text(straggler),
        evidence=_evidence(late, limits),
        ranks=(late.rank,),
        phases=named,
        impact=impact,
    )


def _phases(late: Late, facts: Facts, limits: Thresholds) -> tuple[str, ...]:
    """The phases that it is late in: the one that covers most, or two of its own; none where it is late in many."""
    if late.coverage >= limits.excess_coverage:
        return (late.phase,)
    two = tuple(late.excess_ns)[:_PAIR]
    is_always_last = late.num_last >= limits.always_last * late.whole.num_units
    if not is_always_last or late.covered(_PAIR) < limits.excess_coverage:
        return ()
    return two if all(_is_its_own(late, name, facts, limits) for name in two) else ()


def _is_its_own(late: Late, phase: str, facts: Facts, limits: Thresholds) -> bool:
    """Whether it does there what the others do not: a slower core does all a little longer."""
    known = {rank.state.identity.rank: rank.mean_ns(phase) or 0.0 for rank in facts.ranks if rank.num_steady}
    others = [known.get(rank, 0.0) for rank in late.whole.ranks if rank != late.rank]
    return known.get(late.rank, 0.0) >= limits.its_own_times * median(others)


def slow_rank(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """One rank is slower: as a straggler, but not in one phase by 60 % of what it does more, or it waited for a core.

    It is no cause that this script holds: most likely its core or its device is busy with something else, or slower.

    Next: look at what else runs on the core or the device of this rank.
    """
    late = late_rank(facts, limits)
    if late is None or not late.excess_ns:
        return None
    waits = _core_wait(late, facts, limits)
    if _phases(late, facts, limits) and not waits:
        return None
    impact = impact_of(late.cost, late.whole, facts)
    named = _named(late)
    where = " and ".join(place_of(name) for name in named) if len(named) <= _PAIR else "in several phases"
    more = ", ".join(f"{units.clean(label(name))} {units.duration(late.more_ns(name))}" for name in named)
    return Finding(
        diagnosis="SLOW_RANK",
        severity=INFO,
        summary=f"Rank {late.rank} is slower {where}: {units.duration(impact.ms * NS_PER_MS)} of each step.",
        why=f"more than the others' median: {more}; {_last_in_words(late)}{waits}",
        next=f"see what else runs on the core or device of rank {late.rank}, and whether it is slower itself",
        rule=rule_text(slow_rank),
        evidence=_evidence(late, limits),
        ranks=(late.rank,),
        phases=named,
        impact=impact,
    )


def _named(late: Late) -> tuple[str, ...]:
    """The phases that hold a tenth of what it does more, at most three."""
    total = sum(late.excess_ns.values())
    return tuple(name for name, ns in late.excess_ns.items() if ns >= _NAMED_SHARE * total)[:_NUM_NAMED]


def _core_wait(late: Late, facts: Facts, limits: Thresholds) -> str:
    return core_wait_note(facts, late.rank, late.total_ns, limits)


def late_rank(facts: Facts, limits: Thresholds) -> Optional[Late]:
    """The rank that surely costs the others something, in whatever phase; None when there is none, or no ground."""
    judged, ledger = judged_rank(facts, limits), facts.ledger
    if judged is None or ledger is None or ledger.whole is None or undecided(facts, limits):
        return None
    if ledger.whole.num_units < limits.min_units:
        return None
    gains = [rank.gain.total for rank in ledger.whole.by_rank]
    for at in sorted(range(len(gains)), key=lambda place: -gains[place]):
        late = _late(ledger, at, judged, limits)
        if late is not None:
            return late
    return None


def _late(ledger: LedgerFacts, at: int, judged: RankFacts, limits: Thresholds) -> Optional[Late]:
    """This rank, where it surely costs the others something: last beyond luck, or most of what all would win."""
    whole = ledger.whole
    assert whole is not None
    sums, all_gains = whole.by_rank[at], sum(rank.gain.total for rank in whole.by_rank)
    clumps = clumping([(chunk.by_rank[at].num_last, chunk.num_units) for chunk in ledger.chunks])
    luck = chance_of_last(round(sums.num_last / clumps), round(whole.num_units / clumps), len(whole.ranks))
    holds_most = all_gains > 0 and sums.gain.total >= limits.gain_of_one * all_gains
    if luck >= limits.last_by_luck and not holds_most:
        return None
    if len(whole.ranks) == _PAIR and sums.gain.total < limits.gain_of_pair * all_gains:
        return None  # now the one is behind, and now the other
    cost = unit_cost(ledger, judged, lambda chunk: chunk.by_rank[at].gain)
    least = limits.straggler_share if luck < limits.last_by_luck else limits.rotating_share
    if cost.low_share < least or cost.share >= 1:  # a whole period cannot be won: other steps than were counted
        return None
    means = {name: ns / whole.num_units for name, ns in zip(whole.phases, sums.excess_ns) if ns > 0}
    excess = dict(sorted(means.items(), key=lambda item: -item[1]))
    if len(whole.ranks) == _PAIR and cost.mean_ns < limits.alike_share * max(excess.values(), default=0.0):
        return None  # the other one is as late elsewhere: without this one all would wait for that
    is_each = sums.num_last >= _MOST_UNITS * whole.num_units and _is_typical(ledger, at, cost, limits)
    return Late(whole.ranks[at], at, judged, whole, cost, sums.num_last, luck, excess, is_each)


def _is_typical(ledger: LedgerFacts, at: int, cost: UnitCost, limits: Thresholds) -> bool:
    """Whether the middle part of the run pays about as much as all of it: else a few steps, or a stretch, hold it."""
    means = [chunk.by_rank[at].gain.total / chunk.num_units for chunk in ledger.chunks for _ in range(chunk.num_units)]
    return median(means) >= limits.each_step_share * cost.mean_ns


def _summary(late: Late, impact: Impact, named: tuple[str, ...]) -> str:
    if len(late.whole.ranks) == _PAIR:
        return _summary_of_pair(late)
    most = "" if late.covered(len(named)) >= _NEARLY_ALL else "mostly "
    where = most + " and ".join(place_of(name) for name in named)
    share = share_in_words(impact.pct / 100)
    compared = part_of(late.cost.mean_ns / late.cost.steps_a_unit, late.cost.period_ns / late.cost.steps_a_unit)
    if late.is_each:
        return f"{share} of each step all wait for rank {late.rank}, {where}: {compared}."
    return f"{share} of the time all wait for rank {late.rank}, {where}: {compared} a step."


def _summary_of_pair(late: Late) -> str:
    """By how much the one is behind, where most of that is in one phase; else in all, and of that in which."""
    before, named = f"rank {late.whole.ranks[1 - late.at]}", _named(late)[:_PAIR]
    is_ = "is" if late.is_each else "is on average"
    if len(named) == 1 or late.coverage >= _NEARLY_ALL:
        return (
            f"Rank {late.rank} {is_} {units.duration(late.more_ns(late.phase))} behind {before} {place_of(late.phase)}."
        )
    parts = " and ".join(f"{units.duration(late.more_ns(name))} {place_of(name)}" for name in named)
    return f"Rank {late.rank} {is_} {units.duration(late.total_ns)} behind {before}: {parts}."


def _why(late: Late) -> str:
    more = units.duration(late.more_ns(late.phase))
    beside = [f"{units.clean(label(name))} {units.duration(late.more_ns(name))}" for name in _named(late)[1:]]
    also = f" (beside it {', '.join(beside)})" if beside else ""
    whose = f"rank {late.whole.ranks[1 - late.at]}" if len(late.whole.ranks) == _PAIR else "the others' median"
    phase = units.clean(label(late.phase))
    return (
        f"{phase} takes it {more} a step more than {whose}, {units.percent(late.coverage)} of all it does more{also}; "
        f"{_last_in_words(late)}"
    )


def _last_in_words(late: Late) -> str:
    return f"it came last in {units.count(late.num_last)} of {units.count(late.whole.num_units)} synchronisations"


def _evidence(late: Late, limits: Thresholds) -> tuple[Evidence, ...]:
    return (
        Evidence("gain, lower end", 100 * late.cost.low_share, 100 * limits.straggler_share, "%"),
        Evidence("synchronisations", float(late.whole.num_units), float(limits.min_units), "units"),
        Evidence("last by luck", 100 * late.luck, 100 * limits.last_by_luck, "%"),
        Evidence("excess in one phase", 100 * late.coverage, 100 * limits.excess_coverage, "%"),
    )
