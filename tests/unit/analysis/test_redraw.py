"""Holds the redrawing of runs to its promises: the same draws, stretches that stay together, drift that is seen."""

from __future__ import annotations

from random import Random
from statistics import pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceml.analysis.redraw import BlockTimes, drift_share, mean_of, redraw, typical_of


def times_of(values: list[float], steps: int = 5) -> BlockTimes:
    return BlockTimes((steps,) * len(values), tuple(values), {"step": tuple(values)})


def noisy(num: int, *, size: float = 0.1, seed: int = 1) -> list[float]:
    random = Random(seed)
    return [10.0 * (1 + size * random.gauss(0, 1)) for _ in range(num)]


def test_the_same_run_is_drawn_the_same_again_and_another_seed_otherwise() -> None:
    times = times_of(noisy(64))

    assert redraw(times, seed=1) == redraw(times, seed=1)
    assert redraw(times, seed=1) != redraw(times, seed=2)


def test_draws_lie_around_the_run_itself() -> None:
    times = times_of(noisy(64))

    drawn = redraw(times, seed=1)

    assert min(drawn.typical) <= typical_of(times) <= max(drawn.typical)
    assert sum(drawn.parts["step"]) / 1000 == pytest.approx(mean_of(times, "step"), rel=0.005)


def test_a_block_weighs_as_many_as_it_has_steps() -> None:
    times = BlockTimes((1, 1, 98), (1.0, 2.0, 9.0), {"step": (1.0, 2.0, 9.0)})

    assert typical_of(times) == 9.0
    assert mean_of(times, "step") == pytest.approx(8.85)


def test_the_median_is_between_two_blocks_of_equal_weight() -> None:
    assert typical_of(times_of([1.0, 3.0])) == 2.0


def test_what_comes_and_goes_makes_the_draws_wider_than_the_same_values_shuffled() -> None:
    waves = [10.0 + (2.0 if (at // 8) % 2 else 0.0) + 0.01 * at for at in range(64)]
    shuffled = waves[:]
    Random(3).shuffle(shuffled)

    spread, of_shuffled = (pstdev(redraw(times_of(row), seed=1).parts["step"]) for row in (waves, shuffled))

    assert spread > 1.3 * of_shuffled


def test_a_run_that_wanders_shows_it_and_noise_alone_does_not() -> None:
    noise = [drift_share(times_of(noisy(64, size=0.05, seed=seed))) for seed in range(30)]
    ramp = [value * (1 + 0.3 * at / 64) for at, value in enumerate(noisy(64, size=0.01))]

    assert sorted(noise)[15] < 0.01
    assert drift_share(times_of(ramp)) == pytest.approx(0.09, abs=0.03)


def test_a_short_run_says_nothing_of_its_drift() -> None:
    assert drift_share(times_of([1.0] * 5 + [2.0] * 6)) == 0.0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=64))
def test_any_run_can_be_drawn_and_no_draw_leaves_its_range(values: list[float]) -> None:
    drawn = redraw(times_of(values), seed=7)

    assert len(drawn.typical) == len(drawn.parts["step"]) == 1000
    assert min(drawn.typical) >= min(values)
    assert max(drawn.typical) <= max(values)
