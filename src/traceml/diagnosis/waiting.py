"""Says what the ranks wait for where no single cause holds it, so that nobody is told that all is well meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.core_waits import waits_of_ranks
from traceml.diagnosis.ground import undecided
from traceml.diagnosis.rank_advice import advice_for
from traceml.diagnosis.sentences import part_of, place_of, share_in_words, spread_of
from traceml.schema import units
from traceml.schema.phases import SYNC

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds
    from traceml.schema.syncs import UnitSums

_NUM_TOLD: Final = 4
_PAIR: Final = 2


@dataclass(frozen=True)
class Waiting:
    """A large share of waits that no rule explains: its sentence, what it is made of, and the next step."""

    summary: str
    why: str
    next: str


def waiting_of(facts: Facts, rank: RankFacts, limits: Thresholds) -> Optional[Waiting]:
    """What the ranks wait for; None where it is little, or where nobody can say who waits for whom.

    It is communication itself, as far as the last to arrive waits as well, and the wait for that one, who is now this
    rank and now that: where one rank held it, or where either were larger, there would be a finding of its own.
    """
    share, ledger = rank.share(SYNC) or 0.0, facts.ledger
    if share < limits.waiting_share or ledger is None or ledger.whole is None or undecided(facts, limits):
        return None
    whole, sync_ns, period_ns = ledger.whole, rank.mean_ns(SYNC) or 0.0, rank.total_ns / rank.num_steady
    at = _most(whole, limits)
    for_whom, advice = ("and no single cause holds it", "") if at is None else _for_whom(facts, whole, at, limits)
    transfer_ns = min(sync_ns, whole.transfer.total / whole.num_steps)
    late_ns = sync_ns - transfer_ns
    cores = facts.system.num_cores
    is_crowded = cores is not None and cores < facts.world_size
    shared = f"; {facts.world_size} ranks share {cores:g} cores" if is_crowded and cores else ""
    return Waiting(
        summary=f"{share_in_words(share)} of the time the ranks wait for one another: "
        f"{part_of(sync_ns, period_ns)} a step, {for_whom}.",
        why=f"of what rank {rank.state.identity.rank} waits {units.duration(transfer_ns)} is communication itself, "
        f"{units.duration(late_ns)} for whoever comes last; {_turns(whole)}{shared}",
        next=advice
        or _next(
            is_crowded=is_crowded and _may_be_turns(facts, rank, limits),
            is_transfer=transfer_ns >= late_ns,
            had_no_core=waits_of_ranks(facts) >= limits.core_wait_share,
        ),
    )


def _most(whole: UnitSums, limits: Thresholds) -> Optional[int]:
    """The place of the rank that holds most of the waits, by time; of two ranks three quarters of them."""
    gains = [sums.gain.total for sums in whole.by_rank]
    at = max(range(len(gains)), key=lambda place: gains[place])
    least = limits.gain_of_pair if len(gains) == _PAIR else limits.most_share
    is_most = gains[at] and gains[at] >= limits.most_share * max(whole.lost.total, whole.transfer.total)
    return at if is_most and gains[at] >= least * sum(gains) else None


def _for_whom(facts: Facts, whole: UnitSums, at: int, limits: Thresholds) -> tuple[str, str]:
    """What is said of that rank, with the phase where it is mostly one, and what to do."""
    rank, sums = whole.ranks[at], whole.by_rank[at]
    told = f"{units.duration(sums.gain.total / whole.num_steps)} of it for rank {rank}"
    excess_ns, phase = max(zip(sums.excess_ns, whole.phases))
    if excess_ns <= 0 or excess_ns < limits.excess_coverage * sum(ns for ns in sums.excess_ns if ns > 0):
        return told, f"see what else runs on the core or device of rank {rank}, and whether it is slower itself"
    return f"{told}, {place_of(phase)}", advice_for(facts, (rank,), phase)


def _may_be_turns(facts: Facts, rank: RankFacts, limits: Thresholds) -> bool:
    """Whether the waits may be the others' turns for a core: short ones, in most steps, on a host that is full."""
    spread = spread_of(rank.phases[SYNC], num_steps=rank.num_steady, limits=limits)
    busy, overrun = facts.system.cpu_percent_mean, facts.system.overrun_share
    is_free = busy is not None and busy < limits.full_host_percent and (overrun or 0.0) < limits.overrun_share
    return spread.is_each and (rank.mean_ns(SYNC) or 0.0) <= limits.max_turn_ns and not is_free


def _turns(whole: UnitSums) -> str:
    """What all would win if a rank were like the others, by rank: they are not parts of one whole."""
    ordered = sorted(zip(whole.ranks, whole.by_rank), key=lambda item: (-item[1].gain.total, -item[1].num_last))
    turns = ", ".join(
        f"{units.duration(sums.gain.total / whole.num_steps)} by rank {rank} (last in {units.count(sums.num_last)})"
        for rank, sums in ordered[:_NUM_TOLD]
    )
    return f"to be won: {turns} of {units.count(whole.num_units)} synchronisations"


def _next(*, is_crowded: bool, is_transfer: bool, had_no_core: bool) -> str:
    if is_crowded:
        return "run as many ranks as there are cores: each wait here holds the others' turns for a core"
    if had_no_core:
        return "stop what else takes the cores: each wait here holds the others' turns for one"
    if is_transfer:
        return "reduce less often or less: no_sync() accumulation, larger buckets, half-precision gradients"
    return "give all ranks batches of like length at the same step, and look for what else runs on their cores"
