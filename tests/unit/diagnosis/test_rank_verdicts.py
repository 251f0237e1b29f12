"""Simulated runs of several ranks: the right rank and phase where there is one, and nobody where there is none."""

from __future__ import annotations

import pytest

from tests.unit.analysis.rank_worlds import World
from tests.unit.diagnosis.judged_worlds import judged, named

PLACES = ("input", "between_steps", "in_step", "forward", "backward", "optimizer")


def is_right(phase: str, ms: float, seed: int, *, num_ranks: int = 4) -> bool:
    rank = seed % num_ranks
    world = World(num_ranks=num_ranks, seed=seed, phase=phase, delay_ms=ms, rank=rank)
    found = named(judged(world, 50 if ms >= 60 else 80))  # as the facts have it
    return found is not None and (found.diagnosis, found.ranks, found.phases) == ("STRAGGLER", (rank,), (phase,))


@pytest.mark.parametrize("phase", PLACES)
@pytest.mark.parametrize("ms", [20, 60])
def test_a_delay_of_20_ms_and_more_is_named_in_every_place_and_seed(phase: str, ms: float) -> None:
    assert all(is_right(phase, ms, seed) for seed in range(4))


@pytest.mark.parametrize("phase", PLACES)
def test_a_delay_of_5_ms_is_named_in_nine_of_ten_seeds(phase: str) -> None:
    assert sum(is_right(phase, 5, seed) for seed in range(10)) >= 9  # of 10


@pytest.mark.parametrize("phase", PLACES)
def test_of_two_ranks_the_one_behind_is_named(phase: str) -> None:
    assert all(is_right(phase, 20, seed, num_ranks=2) for seed in range(4))


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("noise", [0.03, 0.06, 0.09])
def test_no_rank_of_a_healthy_run_is_named(num_ranks: int, noise: float) -> None:
    found = [named(judged(World(num_ranks=num_ranks, seed=seed, noise=noise), 80)) for seed in range(10)]

    assert found == [None] * 10


def test_a_uniformly_slow_loader_is_input_bound_and_names_nobody() -> None:
    for seed in range(10):
        diagnosis = judged(World(seed=seed, phase="input", delay_ms=20))

        assert named(diagnosis) is None
        assert diagnosis.step_time[0].diagnosis == "INPUT_BOUND"


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("ms", [5, 20])
def test_ranks_that_are_late_in_turn_are_a_rotation(phase: str, ms: float) -> None:
    for seed in range(6):
        found = named(judged(World(seed=seed, phase=phase, delay_ms=ms, is_turning=True)))

        assert found is not None
        assert (found.diagnosis, found.ranks, found.phases) == ("ROTATING_STRAGGLER", (), (phase,))
        assert "likely pauses" in found.why


@pytest.mark.parametrize("phase", ["input", "forward"])
@pytest.mark.parametrize("ms", [10, 30])
def test_two_ranks_that_are_late_in_turn_are_a_rotation_that_costs_what_all_lose(phase: str, ms: float) -> None:
    for seed in range(6):
        world = World(num_ranks=2, seed=seed, phase=phase, delay_ms=ms, is_turning=True)
        first = judged(world, 100).step_time[0]

        assert (first.diagnosis, first.ranks, first.phases) == ("ROTATING_STRAGGLER", (), (phase,))
        assert first.impact is not None
        assert 0.9 * ms <= first.impact.ms <= 1.15 * ms


def test_two_ranks_with_batches_of_other_lengths_are_a_rotation() -> None:
    for seed in range(6):
        found = named(judged(World(num_ranks=2, seed=seed, length_noise=0.5), 160))

        assert found is not None
        assert found.diagnosis == "ROTATING_STRAGGLER"
        assert "likely data length" in found.why


def test_two_ranks_of_which_one_holds_most_of_the_waits_do_not_turn() -> None:
    world = World(num_ranks=2, phase="between_steps", delay_ms=300, rank=0, every=10)

    assert "ROTATING_STRAGGLER" not in [finding.diagnosis for finding in judged(world, 100).step_time]


def test_batches_of_other_lengths_are_a_rotation_of_data_length() -> None:
    for seed in range(6):
        found = named(judged(World(seed=seed, length_noise=0.4)))

        assert found is not None
        assert found.diagnosis == "ROTATING_STRAGGLER"
        assert "likely data length" in found.why


def test_communication_that_takes_most_of_the_step_is_comm_bound_and_names_nobody() -> None:
    for seed in range(6):
        diagnosis = judged(World(seed=seed, transfer_ms=25))

        assert named(diagnosis) is None
        assert diagnosis.step_time[0].diagnosis == "COMM_BOUND"


def test_a_rank_that_all_wait_for_leads_over_communication_that_takes_longer() -> None:
    found = judged(World(rank=2, phase="forward", delay_ms=30, transfer_ms=38), num_cores=2.0)

    communication = next(finding for finding in found.step_time if finding.diagnosis == "COMM_BOUND")
    assert (found.verdict.diagnosis, found.verdict.severity, found.verdict.ranks) == ("STRAGGLER", "critical", (2,))
    assert communication.impact is not None
    assert found.verdict.impact is not None
    assert communication.impact.ms > found.verdict.impact.ms
    assert communication.severity == "warning"


def test_a_single_slow_step_now_and_then_is_no_straggler() -> None:
    for seed in range(6):
        world = World(seed=seed, phase="between_steps", delay_ms=60, rank=0, every=40)

        assert named(judged(world, 120)) is None


def test_micro_batches_that_are_slow_in_turn_within_a_unit_are_no_rotation() -> None:
    world = World(seed=3, phase="forward", delay_ms=10, is_turning=True, sync_every=1)
    every_fourth = World(seed=3, phase="forward", delay_ms=10, rank=1, sync_every=4)
    found = named(judged(every_fourth, 160))

    assert found is not None
    assert (found.diagnosis, found.ranks, found.phases) == ("STRAGGLER", (1,), ("forward",))
    assert named(judged(world, 160)) is not None


def test_a_rank_that_is_slower_in_everything_is_told_and_not_called_a_straggler() -> None:
    for seed in range(6):
        diagnosis = judged(World(seed=seed, slow_rank={2: 1.35}))
        beside = [finding for finding in diagnosis.step_time if finding.diagnosis == "SLOW_RANK"]

        assert named(diagnosis) is None
        assert [finding.ranks for finding in beside] == [(2,)]
        assert beside[0].severity == "info"
        assert diagnosis.step_time[0].diagnosis != "SLOW_RANK"


def test_the_price_is_what_the_delay_costs_all() -> None:
    found = named(judged(World(seed=1, phase="backward", delay_ms=20, rank=2), 120))

    assert found is not None
    assert found.impact is not None
    assert 17 <= found.impact.ms <= 20.5  # the second slowest decides after the fix
    assert found.impact.low_ms <= found.impact.ms <= found.impact.high_ms


def test_the_same_run_gets_the_same_findings() -> None:
    world = World(seed=5, phase="forward", delay_ms=5, rank=1)

    assert judged(world) == judged(world)
