"""Judges what the ranks lose together: to whoever is late in turn, and to communication itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.core_waits import waits_of_ranks
from traceml.diagnosis.finding import CRITICAL, WARNING, Evidence, Finding
from traceml.diagnosis.ground import judged_rank, undecided
from traceml.diagnosis.ledger_price import UnitCost, impact_of, unit_cost
from traceml.diagnosis.price import NS_PER_MS, rule_text, severity_of
from traceml.diagnosis.sentences import part_of, share_in_words
from traceml.diagnosis.straggler import straggler
from traceml.schema import units
from traceml.schema.phases import SYNC, label

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts
    from traceml.diagnosis.thresholds import Thresholds
    from traceml.schema.syncs import Moments, UnitSums

DATA_LENGTH: Final = "data length"
PAUSES: Final = "pauses"
_PAIR: Final = 2


def rotating_straggler(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """The ranks wait for another one each time: what the last does more than the median costs at least 12 %.

    The lower end of its interval counts, over at least 20 synchronisations; more than half of the ranks come last in
    turn, and none of them is a STRAGGLER. Of two ranks it is 25 %, in one phase, unless the lengths of their batches
    are known to do it. The likely kind is data length when forward and backward move together with the tokens of the
    batch (or together, where nobody counts tokens), else pauses.

    Next: batches of like length in all ranks at the same step; or, for pauses, what stops a rank now and then.
    """
    rank, ledger = judged_rank(facts, limits), facts.ledger
    if rank is None or ledger is None or ledger.whole is None or undecided(facts, limits):
        return None
    whole = ledger.whole
    if whole.num_units < limits.min_units or straggler(facts, limits) is not None:
        return None
    cost, num_culprits = unit_cost(ledger, rank, lambda chunk: chunk.lost), culprits(whole)
    most = max((rank.gain.total for rank in whole.by_rank), default=0)
    # Of two ranks one always holds half of it.
    most_of_one = limits.gain_of_pair if len(whole.ranks) == _PAIR else limits.culprits_share
    if most > most_of_one * whole.lost.total:
        return None  # whoever comes last by a hair in the other steps, one rank holds most of it
    kind = kind_of(whole.moments, limits)
    is_certain = kind == DATA_LENGTH and whole.moments.items2 > 0
    is_doubtful = len(whole.ranks) == _PAIR and not is_certain  # two ranks on a busy host are a little late in turn
    least = limits.rotating_share_of_pair if is_doubtful else limits.rotating_share
    if is_doubtful and kind == PAUSES and _coverage(whole) < limits.excess_coverage:
        return None  # noise moves all phases
    if cost.low_share < least or num_culprits <= limits.culprits_share * len(whole.ranks):
        return None
    impact = impact_of(cost, whole, facts)
    at = max(range(len(whole.phases)), key=lambda place: whole.last_excess_ns[place])
    phase = whole.phases[at]
    return Finding(
        diagnosis="ROTATING_STRAGGLER",
        severity=severity_of(impact, rank, limits, at_most=CRITICAL),
        summary=f"{share_in_words(cost.share)} of each step the ranks wait for another one in turn: {_compared(cost)}.",
        why=f"likely {kind}{_moves(whole.moments)}; most of it in {units.clean(label(phase))}; "
        f"{_turns(whole)} of {units.count(whole.num_units)} synchronisations{_shared(facts) if kind == PAUSES else ''}",
        next=_rotating_next(kind, phase),
        rule=rule_text(rotating_straggler),
        evidence=(
            Evidence("lost, lower end", 100 * cost.low_share, 100 * least, "%"),
            Evidence("ranks that come last in turn", num_culprits, limits.culprits_share * len(whole.ranks), "ranks"),
            Evidence("synchronisations", float(whole.num_units), float(limits.min_units), "units"),
        ),
        phases=(phase,),
        impact=impact,
    )


def comm_bound(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """Communication itself takes at least 20 % and 0.5 ms of the period: what even the last rank to arrive waits.

    40 % on a host with fewer cores than ranks, where the ranks waited for a core a tenth of the time, or where neither
    is known: gloo's own turns for a core are in it.
    The price is an upper bound, since no communication is free.

    Next: fewer or smaller reductions: gradient accumulation with `no_sync()`, a larger `bucket_cap_mb`, half-precision
    gradients; on a crowded host fewer ranks or more cores.
    """
    rank, ledger = judged_rank(facts, limits), facts.ledger
    if rank is None or ledger is None or ledger.whole is None or undecided(facts, limits):
        return None
    cost = unit_cost(ledger, rank, lambda chunk: chunk.transfer)
    had_no_core = waits_of_ranks(facts) >= limits.core_wait_share
    is_crowded = had_no_core or _is_crowded(facts)
    limit = limits.comm_share if is_crowded is False else limits.comm_share_of_crowded_host
    a_step_ns = cost.mean_ns / cost.steps_a_unit
    if ledger.num_units < limits.min_units or cost.share < limit or a_step_ns < limits.min_cost_ns:
        return None
    impact = impact_of(cost, ledger.whole, facts)
    cores, host = facts.system.num_cores, ""
    if is_crowded and cores is not None and cores < facts.world_size:
        host = f"; {facts.world_size} ranks share {units.significant(cores)} cores, and their turns are in it"
    elif is_crowded:
        waited = units.percent(waits_of_ranks(facts))
        host = f"; the ranks waited for a core {waited} of the time, and their turns are in it"
    return Finding(
        diagnosis="COMM_BOUND",
        severity=severity_of(impact, rank, limits, at_most=WARNING),
        summary=f"{share_in_words(cost.share)} of each step is communication itself: {_compared(cost)}.",
        why=f"so long waits even the last rank to arrive; the ranks lose {_lost(ledger.whole)} a step to one another"
        + host,
        next=_comm_next(is_crowded=bool(_is_crowded(facts)), had_no_core=had_no_core),
        rule=rule_text(comm_bound),
        evidence=(
            Evidence("transfer", 100 * cost.share, 100 * limit, "%"),
            Evidence("transfer a step", a_step_ns / NS_PER_MS, limits.min_cost_ns / NS_PER_MS, "ms"),
        ),
        phases=(SYNC,),
        impact=impact,
    )


def _coverage(whole: UnitSums) -> float:
    """The share of one phase in what the last rank does more."""
    total = sum(whole.last_excess_ns)
    return max(whole.last_excess_ns) / total if total else 0.0


def culprits(whole: UnitSums) -> float:
    """How many ranks effectively come last in turn: 1 when it is always the same, all of them when evenly."""
    shares = [rank.num_last / whole.num_units for rank in whole.by_rank if rank.num_last]
    return math.exp(-sum(share * math.log(share) for share in shares))


def kind_of(moments: Moments, limits: Thresholds) -> str:
    """What lets the ranks differ in turn, likely: the length of their data, or pauses."""
    together = _correlation(moments.forward_backward, moments.forward2, moments.backward2)
    if together is None or together < limits.moves_together:
        return PAUSES
    if not moments.items2:
        return DATA_LENGTH
    both = moments.forward2 + moments.backward2 + 2 * moments.forward_backward
    with_items = _correlation(moments.forward_items + moments.backward_items, both, moments.items2)
    return DATA_LENGTH if with_items is not None and with_items >= limits.moves_together else PAUSES


def _correlation(product: int, one: int, other: int) -> Optional[float]:
    return product / math.sqrt(one * other) if one > 0 and other > 0 else None


def _moves(moments: Moments) -> str:
    if not moments.items2:
        return " (the tokens of the batches are not known, or alike)"
    both = moments.forward2 + moments.backward2 + 2 * moments.forward_backward
    found = _correlation(moments.forward_items + moments.backward_items, both, moments.items2) or 0.0
    return f" (forward and backward against the batch's size: correlation {found:.2f})"


def _rotating_next(kind: str, phase: str) -> str:
    if kind == DATA_LENGTH:
        return "give all ranks batches of like length at the same step: bucket by length, or pack to a number of tokens"
    return (
        f"find what stops a rank now and then in {units.clean(label(phase))}: other jobs, garbage collection, storage"
    )


def _comm_next(*, is_crowded: bool, had_no_core: bool) -> str:
    if is_crowded:
        return "run as many ranks as there are cores; then reduce less often (gradient accumulation with no_sync())"
    if had_no_core:
        return "stop what else takes the cores; then reduce less often (gradient accumulation with no_sync())"
    return (
        "reduce less often or less: no_sync() accumulation, larger bucket_cap_mb, fp16 gradients; then torch.profiler"
    )


def _shared(facts: Facts) -> str:
    """That pauses may be no more than the ranks' turns for a core; nothing where each has one of its own."""
    cores = facts.system.num_cores
    if cores is None or not _is_crowded(facts):
        return ""
    return f"; {facts.world_size} ranks share {cores:g} cores, and their turns alone can make them late"


def _is_crowded(facts: Facts) -> Optional[bool]:
    cores = facts.system.num_cores
    return None if cores is None else cores < facts.world_size


def _compared(cost: UnitCost) -> str:
    return part_of(cost.mean_ns / cost.steps_a_unit, cost.period_ns / cost.steps_a_unit)


def _lost(whole: UnitSums) -> str:
    return units.duration(whole.lost.total / whole.num_steps)


def _turns(whole: UnitSums) -> str:
    ordered = sorted(zip(whole.by_rank, whole.ranks), key=lambda item: -item[0].num_last)
    said = ", ".join(f"rank {rank} in {units.count(sums.num_last)}" for sums, rank in ordered[:4])
    return f"last were {said}"
