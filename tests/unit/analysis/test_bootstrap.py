"""Tests the interval of a mean."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceml.analysis.bootstrap import mean_interval

CHUNKS = st.lists(st.tuples(st.floats(0, 1e12), st.integers(1, 10_000)), min_size=1, max_size=64)


@given(CHUNKS)
def test_the_interval_holds_the_mean_and_lies_within_the_values(chunks: list[tuple[float, int]]) -> None:
    values, weights = zip(*chunks)
    mean = sum(v * w for v, w in chunks) / sum(weights)

    low, high = mean_interval(values, weights)

    assert low <= mean <= high
    blur = 1e-3 + 1e-12 * max(map(abs, values))  # of doubles that are added up
    assert min(values) * (1 - 1e-6) - blur <= low
    assert high <= max(values) * (1 + 1e-6) + blur


def test_the_same_chunks_give_the_same_interval() -> None:
    values = [float(i * 7 % 13) for i in range(64)]

    assert mean_interval(values, [1] * 64) == mean_interval(values, [1] * 64)


def test_even_chunks_give_no_width() -> None:
    assert mean_interval([5.0] * 64, [10] * 64) == pytest.approx((5.0, 5.0))


def test_without_chunks_the_interval_is_nothing() -> None:
    assert mean_interval([], []) == (0.0, 0.0)


def test_about_95_of_100_intervals_hold_the_true_mean() -> None:
    random = Random(3)
    held = 0
    for _ in range(100):
        low, high = mean_interval([random.gauss(100, 10) for _ in range(64)], [1] * 64)
        held += low <= 100 <= high

    assert 85 <= held <= 100


def test_neighbours_that_are_alike_widen_the_interval() -> None:
    mixed = [float(i % 2) for i in range(64)]
    in_runs = [float(i // 8 % 2) for i in range(64)]

    narrow, wide = mean_interval(mixed, [1] * 64), mean_interval(in_runs, [1] * 64)

    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_a_chunk_weighs_as_much_as_it_has_steps() -> None:
    low, high = mean_interval([0.0, 100.0], [999, 1])

    assert low <= 0.1 <= high
