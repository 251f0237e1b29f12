"""Tests what is said of a rank that is late in two phases, of two that take turns, and by which number."""

from __future__ import annotations

import pytest

from tests.unit.analysis.rank_worlds import World, simulate
from tests.unit.diagnosis.judged_worlds import facts_of_ranks, judged
from tests.unit.diagnosis.test_core_waits import waited
from traceml.diagnosis.finding import Finding
from traceml.diagnosis.verdict import diagnose
from traceml.schema.phases import PHASE_INDEX
from traceml.schema.records import StepRecord


def first(steps: list[list[StepRecord]], **surroundings: object) -> Finding:
    return diagnose(facts_of_ranks(steps, **surroundings)).step_time[0]  # type: ignore[arg-type]


def late_in_two(num_ranks: int, *, forward_ms: float = 20, between_ms: float = 18) -> list[list[StepRecord]]:
    """Rank 1 is late in forward, and as much between its steps: more than 60 % is in neither."""
    pauses = {(step, 1): between_ms for step in range(1, 101)}
    world = World(num_ranks=num_ranks, phase="forward", delay_ms=forward_ms, rank=1, pauses=pauses)
    return simulate(world, 100)


def test_a_rank_that_is_late_in_two_phases_of_its_own_is_a_straggler_in_both() -> None:
    found = first(late_in_two(3))

    assert (found.diagnosis, found.ranks) == ("STRAGGLER", (1,))
    assert set(found.phases) == {"forward", "between_steps"}
    assert "all wait for rank 1, " in found.summary
    assert "in forward" in found.summary
    assert "between steps" in found.summary


def test_of_two_ranks_each_number_is_that_of_the_phase_beside_it() -> None:
    found = first(late_in_two(2))

    assert found.summary.startswith("Rank 1 is ")
    _, _, parts = found.summary.partition("behind rank 0: ")
    assert "ms in forward and " in parts or "ms between steps and " in parts


@pytest.mark.parametrize("phase", ["input", "forward", "backward", "optimizer"])
def test_of_two_ranks_the_number_said_is_what_the_phase_takes_longer(phase: str) -> None:
    steps = simulate(World(num_ranks=2, phase=phase, delay_ms=20, rank=1), 80)
    found = first(steps)
    at = PHASE_INDEX[phase]
    means = [sum(step.phase_ns[at] or 0 for step in own[8:]) / len(own[8:]) for own in steps]

    assert found.summary.endswith(f" behind rank 0 in {phase}.")
    said_ms = float(found.summary.split(" ms behind")[0].rpartition(" ")[2])
    assert said_ms == pytest.approx((means[1] - means[0]) / 1e6, rel=0.1)


@pytest.mark.parametrize("seed", range(8))
def test_two_ranks_that_are_now_the_one_and_now_the_other_behind_name_nobody(seed: int) -> None:
    pauses = {(step, 0 if step % 3 == 0 else 1): 9.0 for step in range(1, 161)}
    found = judged(World(num_ranks=2, seed=seed, pauses=pauses), 160)

    assert "STRAGGLER" not in [one.diagnosis for one in found.step_time]


def test_what_is_left_without_the_waits_for_a_core_is_still_a_straggler() -> None:
    """A collection of 270 ms beside others holds waits, and is one all the same."""
    steps = simulate(World(num_ranks=3, phase="forward", delay_ms=270, rank=1), 80)
    shares = {0: 0.1, 1: 0.6, 2: 0.1}
    samples = [sample for rank, share in shares.items() for sample in waited(share, rank=rank)]

    found = first(steps, processes=samples)

    assert (found.diagnosis, found.ranks) == ("STRAGGLER", (1,))


def test_the_price_of_ranks_with_steps_of_their_own_is_that_of_the_steps_they_share() -> None:
    steps = simulate(World(num_ranks=3, phase="forward", delay_ms=20, rank=2), 100)
    own = [[step._replace(step=step.step + 100, end_ns=step.end_ns + 10**10, sync=None) for step in r] for r in steps]

    found = first([[*shared, *more] for shared, more in zip(steps, own)])
    shared = first(steps)

    assert (found.diagnosis, found.ranks) == ("STRAGGLER", (2,))
    assert found.impact is not None
    assert shared.impact is not None
    assert shared.impact.num_steps is None
    assert 90 <= (found.impact.num_steps or 0) <= 100


def test_what_one_rank_does_behind_a_later_one_is_no_cost_of_all() -> None:
    """Rank 2 is 12 ms between its steps, which nobody waits for: rank 1 is 20 ms late in forward."""
    pauses = {(step, 2): 12.0 for step in range(1, 101)}
    steps = simulate(World(num_ranks=3, phase="forward", delay_ms=20, rank=1, pauses=pauses), 100)
    found = diagnose(facts_of_ranks(steps)).step_time

    assert (found[0].diagnosis, found[0].ranks, found[0].phases) == ("STRAGGLER", (1,), ("forward",))
    assert "OVERHEAD_BOUND" not in [one.diagnosis for one in found]


def test_of_two_ranks_that_are_as_late_as_each_other_none_is_named() -> None:
    pauses = {(step, 1): 20.0 for step in range(1, 101)}
    steps = simulate(World(num_ranks=2, phase="forward", delay_ms=20, rank=0, pauses=pauses), 100)

    assert "STRAGGLER" not in [one.diagnosis for one in diagnose(facts_of_ranks(steps)).step_time]


def test_a_rank_that_is_late_for_a_third_of_the_run_is_so_on_average() -> None:
    late = {(step, 1): 30.0 for step in range(71, 101)}
    of_two = first(simulate(World(num_ranks=2, pauses=late), 100))
    of_three = first(simulate(World(num_ranks=3, pauses=late), 100))

    assert "of each step" not in of_three.summary
    assert "on average" in of_two.summary or of_two.diagnosis == "OVERHEAD_BOUND"
    assert all("% of it in steps 7" in one.why for one in (of_two, of_three))
