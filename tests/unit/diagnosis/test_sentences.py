"""Tests that a sentence says "each step" only of what each step pays, and no number that is not so."""

from __future__ import annotations

import pytest

from traceml.diagnosis.sentences import part_of, share_in_words, spread_of
from traceml.diagnosis.thresholds import LIMITS
from traceml.schema.distribution import Distribution


def spread(values: list[int], *, num_steps: int) -> tuple[bool, int]:
    found = spread_of(Distribution.of(values), num_steps=num_steps, limits=LIMITS)
    return found.is_each, found.num_holding


def test_an_even_cost_is_one_of_each_step() -> None:
    assert spread([1000] * 50, num_steps=50)[0] is True


def test_a_cost_of_every_third_step_is_one_of_those_steps() -> None:
    assert spread([40_000] * 60, num_steps=180) == (False, 60)


def test_a_long_one_among_small_ones_holds_the_cost_alone() -> None:
    assert spread([100] * 199 + [5_000_000], num_steps=200) == (False, 1)


@pytest.mark.parametrize(("small", "is_each"), [(52, True), (30, False)])
def test_the_typical_step_must_pay_half_of_the_mean(small: int, is_each: bool) -> None:
    values = [small] * 60 + [172 - small] * 40  # a mean of about 100 and 80

    assert spread(values, num_steps=100)[0] is is_each


def test_a_cost_that_never_came_holds_nothing() -> None:
    found = spread_of(Distribution(), num_steps=0, limits=LIMITS)

    assert (found.num_holding, found.held_share, found.total_ns) == (0, 0.0, 0)


def test_two_times_that_are_compared_have_one_unit() -> None:
    assert part_of(35_600_000, 81_000_000) == "35.6 of 81.0 ms"
    assert part_of(178e9, 405e9) == "2 min 58 s of 6 min 45 s"


@pytest.mark.parametrize(("share", "said"), [(1.0, "100 %"), (0.997, "Over 99 %"), (0.44, "44 %"), (0.004, "0.4 %")])
def test_nearly_all_is_not_all(share: float, said: str) -> None:
    assert share_in_words(share) == said
