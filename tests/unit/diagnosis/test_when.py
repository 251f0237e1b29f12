"""Tests in which steps a cost is said to lie, and that nothing is said where it is everywhere, or an event."""

from __future__ import annotations

from random import Random

import pytest

from tests.builders import facts_of_steps, step_ms
from tests.unit.analysis.rank_worlds import World, simulate
from tests.unit.diagnosis.judged_worlds import facts_of_ranks
from traceml.diagnosis.thresholds import LIMITS
from traceml.diagnosis.verdict import diagnose
from traceml.diagnosis.when import Piece, densest
from traceml.schema.records import StepRecord

QUICK, SLOW = step_ms(input=0.5, forward=10), step_ms(input=20, forward=10)


def pieces(costs: list[float]) -> list[Piece]:
    return [Piece(at, at, 1, cost) for at, cost in enumerate(costs, start=1)]


def test_waits_in_some_steps_are_told_with_these_steps() -> None:
    found = diagnose(facts_of_steps([QUICK] * 60 + [SLOW] * 40 + [QUICK] * 60)).verdict

    assert found.diagnosis == "INPUT_BOUND"
    assert found.why.endswith("% of it in steps 61 to 100")


@pytest.mark.parametrize(
    "steps",
    [[SLOW] * 80, [QUICK, SLOW] * 40, [QUICK] * 30 + [SLOW] * 50, [QUICK] * 60 + [step_ms(input=900, forward=10)]],
    ids=["all", "every other", "most", "one"],
)
def test_a_cost_that_is_everywhere_or_in_one_step_has_no_place(steps: list[StepRecord]) -> None:
    assert " of it in steps " not in diagnose(facts_of_steps(steps)).verdict.why


def test_a_rank_that_is_late_for_a_while_is_told_with_these_steps() -> None:
    world = World(seed=3, pauses={(step, 2): 60.0 for step in range(41, 71)})

    found = diagnose(facts_of_ranks(simulate(world, 120))).step_time[0]

    assert found.ranks == (2,)
    assert "% of it in steps 41 to 7" in found.why


def test_steps_in_a_row_that_hold_four_fifths_are_found_wherever_there_are_some() -> None:
    random = Random(1)
    num_found = 0
    for _ in range(300):
        dense, num = random.random(), random.randint(1, 60)
        costs = [10.0 if random.random() < (0.9 if num / 3 < at < num * dense else 0.05) else 0.0 for at in range(num)]
        total = sum(costs)
        lengths = [
            last - first + 1
            for first in range(len(costs))
            for last in range(first, len(costs))
            if total and sum(costs[first : last + 1]) >= LIMITS.spell_share * total
        ]
        least = min(lengths, default=0)
        found = densest(pieces(costs), LIMITS)
        if found is None:
            continue
        num_found += 1
        share, first, last = found

        assert share == pytest.approx(sum(costs[first - 1 : last]) / total)
        assert least <= last - first + 1 <= LIMITS.most_of_steps * len(costs)
        assert costs[first - 1] > 0
        assert costs[last - 1] > 0

    assert num_found > 20
