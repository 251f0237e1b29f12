"""Redraws a run from its own blocks: how its typical step and its parts would spread if it were run again just so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from statistics import fmean, median, pstdev, pvariance
from typing import Final, Iterator, Mapping, Sequence

from traceml.analysis.bootstrap import BLOCK, NUM_DRAWS

_MIN_RINGS: Final = 4  # with fewer stretches than this round the circle a draw is nearly the whole
_NUM_QUARTERS: Final = 4
_MIN_PER_QUARTER: Final = 3  # blocks; fewer tell nothing of a drift within the run
_MEDIAN_FACTOR: Final = 1.25  # the standard error of a median, in that of a mean, of normal values
_HIGHEST: Final = 0.95  # of the autocorrelation, beyond which a number of independent blocks is not to be told


@dataclass(frozen=True)
class BlockTimes:
    """Consecutive steady stretches of a run, in order: steps, median period and means by part, all in one unit.

    Every part has a value for every block; periods are above 0, there is at least one block.
    """

    num_steps: tuple[int, ...]
    typical: tuple[float, ...]
    parts: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Redrawn:
    """What `NUM_DRAWS` redrawn runs came to: the typical step of each, and the mean of each part."""

    typical: tuple[float, ...]
    parts: Mapping[str, tuple[float, ...]]


def typical_of(times: BlockTimes) -> float:
    """The run's typical step: the median of the blocks' medians, each weighing as many as it has steps."""
    return _weighted_median(times.typical, times.num_steps)


def mean_of(times: BlockTimes, part: str) -> float:
    """The mean of a part over all steps."""
    total = sum(value * steps for value, steps in zip(times.parts[part], times.num_steps))
    return total / sum(times.num_steps)


def redraw(times: BlockTimes, *, seed: int) -> Redrawn:
    """Draws the run again from stretches of its blocks (circular block bootstrap); the same input gives the same draws.

    Neighbouring blocks stay together, in stretches that are as long as the blocks are alike, so that what comes and
    goes over many steps is not taken for so many independent ones. All parts are drawn with the same stretches.

    Args:
        times: The run's blocks.
        seed: Two runs that are compared take two.
    """
    num_blocks = len(times.typical)
    length = _stretch(times.typical)
    starts = _starts(num_blocks, length, seed)
    num_last = num_blocks - length * (num_blocks // length)
    lengths = [length] * (num_blocks // length) + ([num_last] if num_last else [])
    places = [[(start + k) % num_blocks for start, n in zip(row, lengths) for k in range(n)] for row in starts]
    typical = tuple(_drawn_medians(times, places))
    steps = _sums([float(n) for n in times.num_steps], starts, lengths)
    parts = {}
    for name, values in times.parts.items():
        sums = _sums([v * n for v, n in zip(values, times.num_steps)], starts, lengths)
        parts[name] = tuple(total / count for total, count in zip(sums, steps))
    return Redrawn(typical, parts)


def drift_share(times: BlockTimes) -> float:
    """How far the run wandered, beyond what the scatter of its blocks explains: a standard deviation as a share (0..1).

    The spread of the medians of its four quarters. 0 with fewer than 12 blocks: nothing can be said then.
    """
    size = len(times.typical) // _NUM_QUARTERS
    if size < _MIN_PER_QUARTER:
        return 0.0
    logs = [math.log(value) for value in times.typical]
    quarters = [logs[at * size : (at + 1) * size] for at in range(_NUM_QUARTERS)]
    # The scatter is that between neighbours: a drift within a quarter is not in it.
    steps = [b - a for quarter in quarters for a, b in zip(quarter, quarter[1:])]
    scatter = median(abs(step) for step in steps) / 0.954  # of normal values: 0.6745 x sqrt(2) standard deviations
    expected = (_MEDIAN_FACTOR * scatter) ** 2 / size
    found = pvariance([median(quarter) for quarter in quarters]) * _NUM_QUARTERS / (_NUM_QUARTERS - 1)
    return math.sqrt(max(0.0, found - expected))


def _stretch(values: Sequence[float]) -> int:
    """The length of a stretch: at least the house's block; longer where blocks far apart are still alike."""
    num_blocks = len(values)
    most = max(1, num_blocks // _MIN_RINGS)
    likeness = min(_autocorrelation(values), _HIGHEST)
    wanted = math.ceil((1 + likeness) / (1 - likeness)) if likeness > 0 else 1
    return min(most, max(BLOCK, wanted))


def _autocorrelation(values: Sequence[float]) -> float:
    """Of neighbours, on ranks of size: an outlier alone makes nothing alike."""
    if len(values) < _MIN_PER_QUARTER:
        return 0.0
    middle, scale = median(values), pstdev(values)
    if scale <= 0:
        return 0.0
    bounded = [max(-scale, min(scale, value - middle)) for value in values]
    mean = fmean(bounded)
    bounded = [value - mean for value in bounded]
    power = sum(value * value for value in bounded)
    return sum(a * b for a, b in zip(bounded, bounded[1:])) / power if power > 0 else 0.0


def _starts(num_blocks: int, length: int, seed: int) -> list[list[int]]:
    """Where each stretch of each draw begins."""
    random = Random(seed)  # noqa: S311 - a fixed seed on purpose: the same runs give the same interval
    per_draw = math.ceil(num_blocks / length)
    return [random.choices(range(num_blocks), k=per_draw) for _ in range(NUM_DRAWS)]


def _sums(values: Sequence[float], starts: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[float]:
    """Each draw's sum, over stretches of the circle."""
    passed = [0.0, *accumulate([*values, *values])]
    return [sum(passed[at + n] - passed[at] for at, n in zip(row, lengths)) for row in starts]


def _drawn_medians(times: BlockTimes, places: Sequence[Sequence[int]]) -> Iterator[float]:
    """Each draw's weighted median; blocks are put in order once, draws by their places in it."""
    order = sorted(range(len(times.typical)), key=lambda at: times.typical[at])
    values, weights = [times.typical[at] for at in order], [times.num_steps[at] for at in order]
    ranks_of = {at: rank for rank, at in enumerate(order)}
    for row in places:
        ranks = sorted([ranks_of[at] for at in row])
        half, passed = sum([weights[rank] for rank in ranks]) / 2, 0
        for rank, following in zip(ranks, [*ranks[1:], ranks[-1]]):
            passed += weights[rank]
            if passed >= half:
                yield values[rank] if passed > half else (values[rank] + values[following]) / 2
                break


def _weighted_median(values: Sequence[float], weights: Sequence[int]) -> float:
    """The value in the middle of the weights; between two, their mean."""
    pairs = sorted(zip(values, weights))
    half, passed = sum(weights) / 2, 0
    for at, (value, weight) in enumerate(pairs):
        passed += weight
        if passed > half:
            return value
        if passed == half and at + 1 < len(pairs):
            return (value + pairs[at + 1][0]) / 2
    return pairs[-1][0]
