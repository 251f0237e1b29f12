"""Decides whether there is ground to judge on, and which rank is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from traceml.schema.phases import INPUT

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds


def judged_rank(facts: Facts, limits: Thresholds) -> Optional[RankFacts]:
    """The rank whose step time is judged: the median one, with enough steady steps; None where nothing can be said."""
    rank = facts.median_rank
    if facts.unsure or rank is None or rank.num_steady < num_steps_needed(facts, limits) or not rank.total_ns:
        return None
    return rank


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
