"""Decides whether there is ground to judge on, and which rank is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from traceml.schema import units
from traceml.schema.phases import INPUT, SYNC

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds


def judged_rank(facts: Facts, limits: Thresholds) -> Optional[RankFacts]:
    """The rank whose step time is judged: the median one, with enough steady steps; None where nothing can be said."""
    rank = facts.median_rank
    if facts.unsure or rank is None or rank.num_steady < num_steps_needed(facts, limits) or not rank.total_ns:
        return None
    return None if num_units_missing(facts, limits) else rank


def num_units_missing(facts: Facts, limits: Thresholds) -> int:
    """How many more units between two syncs a verdict of several ranks needs; 0 where none are to be had."""
    if facts.ledger is None or not facts.ledger.num_synced or undecided(facts, limits):
        return 0
    return max(0, limits.min_units - facts.ledger.num_units)


def undecided(facts: Facts, limits: Thresholds) -> str:
    """Why nobody can say which rank the others wait for; empty when it can be said, or when there is one rank only."""
    if facts.world_size < 2 or facts.median_rank is None:  # noqa: PLR2004  # several ranks
        return ""
    heard = {rank.state.identity.rank for rank in facts.ranks}
    silent = [rank for rank in range(facts.world_size) if rank not in heard]
    if silent:
        were = "rank {} of {} was" if len(silent) == 1 else "ranks {} of {} were"
        return were.format(units.listed(silent), facts.world_size) + " not heard here"
    reasons = [units.clean(rank.state.unwatched[SYNC]) for rank in facts.ranks if SYNC in rank.state.unwatched]
    if reasons:
        return reasons[0]
    devices = {rank.state.identity.device.partition(":")[0] for rank in facts.ranks} - {"cpu"}
    if devices and (facts.ledger is None or facts.ledger.clock != "device"):
        # The host queues a collective and goes on: on its clock nobody waits, whoever is late.
        return f"the waits of ranks on {min(devices)} are not told apart yet"
    return _unaligned(facts, limits)


def _unaligned(facts: Facts, limits: Thresholds) -> str:
    ledger, rank = facts.ledger, facts.median_rank
    assert rank is not None
    num_synced = ledger.num_synced if ledger else 0
    if ledger is not None and ledger.num_unaligned > limits.unaligned_share * (ledger.num_unaligned + num_synced):
        return f"the ranks do not synchronise alike: {ledger.unaligned}"
    if not num_synced and rank.num_steady >= limits.min_steady_steps_of_ranks:
        return "no synchronisation between the ranks was seen"
    whole = ledger.whole if ledger else None
    if whole is not None and whole.num_apart >= limits.apart_share * whole.num_units:
        return "the ranks' synchronisations do not end together"
    return ""


def num_steps_needed(facts: Facts, limits: Thresholds) -> int:
    """The number of steady steps before a verdict."""
    return limits.min_steady_steps_of_ranks if facts.world_size > 1 else limits.min_steady_steps


def wait_limit_ns(rank: RankFacts, limits: Thresholds) -> float:
    """From how many ns on a step's input counts as a wait."""
    return max(limits.wait_share_of_typical * (rank.typical_ns or 0.0), limits.min_wait_ns)


def waiting_share(rank: RankFacts, limits: Thresholds) -> Optional[float]:
    """The share (0..1) of the steady steps that wait for data; None when no training loader was seen."""
    waits = rank.phases.get(INPUT)
    if waits is None:
        return None
    return waits.share_at_least(wait_limit_ns(rank, limits), num_zeros=rank.num_without(INPUT))


def waits_steadily(rank: RankFacts, limits: Thresholds) -> bool:
    """Whether enough of the steps wait, and most of what they wait for, or enough of it, is not the start of epochs.

    Workers that start anew make every step of a short epoch wait a little: that is not what such a run suffers from.
    """
    if not waits_often(rank, limits):
        return False
    start_ns = rank.epoch_start.total
    later_ns = (rank.phase_ns(INPUT) or 0) - start_ns
    enough_ns = max(limits.input_share * rank.total_ns, limits.min_cost_ns * rank.num_steady)
    return later_ns >= min(start_ns, enough_ns)


def waits_often(rank: RankFacts, limits: Thresholds) -> bool:
    """Whether enough of the steps wait for data to call the run input-bound, as against a few long waits."""
    share = waiting_share(rank, limits)
    return share is not None and share >= limits.waiting_steps_share
