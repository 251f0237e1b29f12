"""Holds the distances between runs and between repeats to their promises."""

from __future__ import annotations

import math
from random import Random

import pytest

from traceml.analysis.between import of_draws, of_repeats, pooled_spread, repeats_to_tell, student_t


def group(random: Random, number: int, *, mean: float = 0.0) -> list[float]:
    return [random.gauss(mean, 1.0) for _ in range(number)]


def coverage(num_before: int, num_after: int, *, rounds: int = 2000) -> float:
    random, held = Random(5), 0
    for _ in range(rounds):
        found = of_repeats(group(random, num_before), group(random, num_after, mean=1.0))
        held += found.low <= 1.0 <= found.high
    return held / rounds


@pytest.mark.parametrize(("num_before", "num_after"), [(2, 2), (3, 3), (2, 5), (4, 4), (5, 5), (3, 5), (8, 8)])
def test_the_interval_between_repeats_holds_the_truth_in_95_of_100(num_before: int, num_after: int) -> None:
    assert coverage(num_before, num_after) >= 0.94


def test_five_repeats_a_side_leave_out_two_pairs_on_each_side() -> None:
    # P(U <= 2) = 4 / 252: 1.6 % on each side, and 3 would be 2.8 %.
    before, after = [0.0, 1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0, 50.0]
    distances = sorted(b - a for a in before for b in after)

    found = of_repeats(before, after)

    assert (found.low, found.high) == (distances[2], distances[-3])


def test_one_odd_repeat_of_five_does_not_hide_a_change() -> None:
    found = of_repeats([0.00, 0.01, 0.02, 0.01, 0.9], [0.10, 0.11, 0.12, 0.11, 0.10])

    assert found.estimate == pytest.approx(0.1, abs=0.02)


def test_three_repeats_use_students_t() -> None:
    found = of_repeats([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])

    half = 2.776 * math.sqrt(2 / 3)
    assert (found.estimate, found.low, found.high) == pytest.approx((3.0, 3.0 - half, 3.0 + half))


def test_draws_give_the_middle_95_of_100_and_always_hold_the_estimate() -> None:
    found = of_draws([0.0] * 1000, [at / 1000 for at in range(1000)], estimate=0.5)

    assert (found.low, found.high) == (0.025, 0.974)
    assert of_draws([0.0] * 1000, [0.1] * 1000, estimate=0.5).high == 0.5


def test_widened_adds_on_both_sides() -> None:
    found = of_draws([0.0, 0.0], [1.0, 1.0], estimate=1.0).widened(0.25)

    assert (found.estimate, found.low, found.high) == (1.0, 0.75, 1.25)


def test_the_spread_is_pooled_over_both_groups() -> None:
    assert pooled_spread([0.0, 2.0], [10.0, 12.0]) == pytest.approx(math.sqrt(2))
    assert pooled_spread([0.0], [1.0]) == 0.0


def test_more_repeats_tell_a_smaller_distance_and_some_are_never_told() -> None:
    few, many = repeats_to_tell(2.0, spread=1.0), repeats_to_tell(1.0, spread=1.0)

    assert few is not None
    assert many is not None
    assert 2 < few < many
    assert repeats_to_tell(0.01, spread=1.0) is None
    assert repeats_to_tell(0.5, spread=0.0) == 2


def test_students_t_falls_towards_the_normal_one() -> None:
    values = [student_t(freedom) for freedom in range(1, 200)]

    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(1.972, abs=0.003)
