"""Shows that several ranks that are always behind are named together, beside the faster ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.analysis.rank_worlds import World, simulate
from tests.unit.diagnosis.judged_worlds import facts_of_ranks, judged
from traceml.diagnosis.group import group_behind
from traceml.diagnosis.thresholds import LIMITS

TWO_OF_FOUR = World(num_ranks=4, rank=1, also_late=(2,), phase="forward", delay_ms=30)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("num_ranks", "late"), [(4, (1, 2)), (3, (0, 2)), (4, (0, 1, 3)), (8, (1, 2)), (8, (0, 1, 2, 5, 6))]
)
@pytest.mark.parametrize("phase", ["forward", "input", "between_steps"])
def test_ranks_that_are_always_behind_are_named_together(
    num_ranks: int, late: tuple[int, ...], phase: str, seed: int
) -> None:
    world = World(num_ranks=num_ranks, seed=seed, rank=late[0], also_late=late[1:], phase=phase, delay_ms=30)
    first = judged(world, 60).step_time[0]

    assert (first.diagnosis, first.ranks, first.phases) == ("STRAGGLER", late, (phase,))
    assert first.impact is not None
    assert 27 <= first.impact.ms <= 33


def test_the_sentence_names_those_behind_and_those_before_them() -> None:
    first = judged(TWO_OF_FOUR, 60).step_time[0]
    alone_ahead = judged(replace(TWO_OF_FOUR, num_ranks=3), 60).step_time[0]

    assert first.summary.startswith("Ranks 1 and 2 are ")
    assert first.summary.endswith(" ms behind the others in forward.")
    assert alone_ahead.summary.endswith(" ms behind rank 0 in forward.")
    assert first.severity == "critical"


def test_a_single_late_rank_stays_a_single_one() -> None:
    for seed in range(6):
        found = judged(World(seed=seed, rank=2, phase="forward", delay_ms=10)).step_time[0]

        assert (found.diagnosis, found.ranks) == ("STRAGGLER", (2,))


@pytest.mark.parametrize("num_ranks", [3, 4, 8])
@pytest.mark.parametrize("noise", [0.06, 0.09])
def test_no_ranks_of_a_healthy_run_are_behind(num_ranks: int, noise: float) -> None:
    for seed in range(12):
        facts = facts_of_ranks(simulate(World(num_ranks=num_ranks, seed=seed, noise=noise), 80))

        assert group_behind(facts, LIMITS) is None


def test_two_ranks_are_told_by_their_difference_as_ever() -> None:
    assert group_behind(facts_of_ranks(simulate(replace(TWO_OF_FOUR, num_ranks=2, also_late=()), 80)), LIMITS) is None


def test_ranks_that_are_late_in_turn_are_not_behind() -> None:
    world = World(phase="forward", delay_ms=20, is_turning=True)

    assert group_behind(facts_of_ranks(simulate(world, 80)), LIMITS) is None


def test_it_stays_quiet_just_below_its_limit_and_without_a_ledger() -> None:
    facts = facts_of_ranks(simulate(TWO_OF_FOUR, 80))
    found = group_behind(facts, LIMITS)
    assert found is not None
    low_share = found.evidence[0].value / 100

    assert group_behind(facts, replace(LIMITS, straggler_share=low_share + 1e-6)) is None
    assert group_behind(replace(facts, ledger=None), LIMITS) is None
