"""Shows that one very long wait is an event, and that the headline is that of the other steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.analysis.rank_worlds import World
from tests.unit.diagnosis.judged_worlds import judged

PAUSE = {(60, 1): 50_000.0}


@pytest.mark.parametrize(
    ("world", "diagnosis", "ranks"),
    [
        (World(num_ranks=2, phase="input", delay_ms=20), "INPUT_BOUND", (0, 1)),
        (World(phase="forward", delay_ms=20, rank=3), "STRAGGLER", (3,)),
        (World(transfer_ms=25), "COMM_BOUND", ()),
    ],
)
def test_one_pause_of_a_rank_leaves_the_headline_to_the_other_steps(
    world: World, diagnosis: str, ranks: tuple[int, ...]
) -> None:
    first = judged(replace(world, pauses=PAUSE), 99).step_time[0]
    without = judged(world, 99).step_time[0]

    assert first.diagnosis == without.diagnosis == diagnosis
    assert set(first.ranks) <= set(ranks)
    assert first.impact is not None
    assert without.impact is not None
    assert first.impact.pct == pytest.approx(without.impact.pct, rel=0.1)
    assert "; judged without a wait of 50." in first.why
    assert first.why.endswith(" s that ended in step 60, which is an event")


def test_a_healthy_run_with_one_pause_is_not_told_that_it_waits_all_the_time() -> None:
    first = judged(World(num_ranks=2, transfer_ms=2.0, pauses=PAUSE), 99, num_cores=8.0).step_time[0]

    assert "99 %" not in first.summary
    assert first.diagnosis == "COMPUTE_BOUND"


def test_many_long_waits_are_no_events() -> None:
    pauses = {(step, step // 5 % 4): 600.0 for step in range(20, 80, 5)}
    first = judged(World(pauses=pauses), 80).step_time[0]

    assert "which is an event" not in first.why


def test_evaluations_of_one_rank_stay_the_headline() -> None:
    first = judged(World(num_ranks=2, rank=0, phase="eval", delay_ms=9_000, every=100), 299).step_time[0]

    assert "evaluates" in first.summary


def test_an_evaluation_that_takes_one_rank_longer_keeps_its_price() -> None:
    world = World(num_ranks=2, phase="eval", delay_ms=3_000, every=70, pauses={(70, 1): 2_000.0})
    first = judged(world, 99).step_time[0]

    assert (first.diagnosis, first.phases) == ("OVERHEAD_BOUND", ("eval",))
    assert first.impact is not None
    assert first.impact.ms * 99 > 2_900
