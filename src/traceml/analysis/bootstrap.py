"""Draws the interval of a mean from consecutive chunks, by a circular block bootstrap."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Final, Sequence

BLOCK: Final = 8  # neighbouring chunks are alike: single ones make the interval 10 % too narrow, 4 to 16 the same
NUM_DRAWS: Final = 1_000
CONFIDENCE: Final = 0.95
_MIN_BLOCKS: Final = (
    4  # with fewer blocks than this round the circle a draw is nearly the whole, the interval nearly nothing
)
_SEED: Final = 20


def mean_interval(values: Sequence[float], weights: Sequence[int]) -> tuple[float, float]:
    """The 95 % interval of the weighted mean of consecutive chunks.

    The same input gives the same interval. It holds sampling noise only, and always holds the mean itself.

    Args:
        values: A mean each chunk (ns a step), in order.
        weights: The number of steps each chunk, positive.

    Returns:
        Lower and upper end, in the unit of `values`; both 0 without values, both the value with a single one.
    """
    num_chunks = len(values)
    if not num_chunks:
        return 0.0, 0.0
    mean = sum(v * w for v, w in zip(values, weights)) / sum(weights)
    sums, steps = _drawn(values, weights)
    means = sorted(total / count for total, count in zip(sums, steps))
    cut = int(NUM_DRAWS * (1 - CONFIDENCE) / 2)
    return min(means[cut], mean), max(means[-1 - cut], mean)


def _drawn(values: Sequence[float], weights: Sequence[int]) -> tuple[list[float], list[int]]:
    """Sum and number of steps of each draw, which is as many chunks as there are, taken in blocks round the circle."""
    num_chunks = len(values)
    block = max(1, min(BLOCK, num_chunks // _MIN_BLOCKS))
    num_blocks, rest = divmod(num_chunks, block)
    products = [v * w for v, w in zip(values, weights)]
    random = Random(_SEED)  # noqa: S311 - a fixed seed on purpose: the same run gives the same interval
    sums, steps = [0.0] * NUM_DRAWS, [0] * NUM_DRAWS
    for length, num_drawn in ((block, num_blocks), (rest, 1 if rest else 0)):
        of_products, of_weights = _circular_sums(products, length), _circular_sums(weights, length)
        for _ in range(num_drawn):
            starts = random.choices(range(num_chunks), k=NUM_DRAWS)
            sums = [total + of_products[start] for total, start in zip(sums, starts)]
            steps = [total + int(of_weights[start]) for total, start in zip(steps, starts)]
    return sums, steps


def _circular_sums(values: Sequence[float], length: int) -> list[float]:
    """The sum of `length` neighbours from each place on, round the end."""
    passed = [0.0, *accumulate([*values, *values[:length]])]
    return [passed[start + length] - passed[start] for start in range(len(values))]
