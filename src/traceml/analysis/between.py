"""Says how far two runs, or two groups of repeats, lie apart: an estimate and its 95 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median, variance
from typing import Final, Optional, Sequence

CONFIDENCE: Final = 0.95
_MOST_REPEATS: Final = 50
_MIN_GROUP: Final = 2
#: Student's t at 97.5 %, by degrees of freedom from 1.
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_Z: Final = 1.960


@dataclass(frozen=True)
class Distance:
    """By how much the second lies above the first, and its 95 % interval, which always holds the estimate."""

    estimate: float
    low: float
    high: float

    def widened(self, by: float) -> Distance:
        """The same estimate with `by` more on both sides."""
        return Distance(self.estimate, self.low - by, self.high + by)


def of_draws(
    before: Sequence[float], after: Sequence[float], *, estimate: float, confidence: float = CONFIDENCE
) -> Distance:
    """The distance of two runs from as many draws of each: only what varies within the runs.

    Args:
        before: A statistic of each redrawn run.
        after: Likewise of the other.
        estimate: The distance of the runs themselves.
        confidence: Of the interval.
    """
    distances = sorted(b - a for a, b in zip(before, after))
    cut = int(len(distances) * (1 - confidence) / 2)
    return Distance(estimate, min(distances[cut], estimate), max(distances[-1 - cut], estimate))


def of_repeats(before: Sequence[float], after: Sequence[float]) -> Distance:
    """The distance of two groups of repeats, from the spread between them; at least two values each.

    From four a side (or 3 and 5) on it is the Hodges-Lehmann estimate with its exact interval: right whatever the
    values are distributed like, and one odd repeat of five moves it little. With fewer, Student's t of the means.
    """
    assert min(len(before), len(after)) >= _MIN_GROUP, "a spread needs two"
    left_out = _pairs_left_out(len(before), len(after))
    if left_out is None:
        estimate = fmean(after) - fmean(before)
        freedom = len(before) + len(after) - 2
        half = student_t(freedom) * pooled_spread(before, after) * math.sqrt(1 / len(before) + 1 / len(after))
        return Distance(estimate, estimate - half, estimate + half)
    distances = sorted(b - a for a in before for b in after)
    estimate = median(distances)
    return Distance(estimate, distances[left_out], distances[-1 - left_out])


def pooled_spread(before: Sequence[float], after: Sequence[float]) -> float:
    """The standard deviation between repeats, over both groups."""
    squares = sum(variance(group) * (len(group) - 1) for group in (before, after) if len(group) >= _MIN_GROUP)
    freedom = sum(len(group) - 1 for group in (before, after))
    return math.sqrt(squares / freedom) if freedom else 0.0


def repeats_to_tell(distance: float, *, spread: float) -> Optional[int]:
    """How many repeats a side make an interval narrower than `distance` on either side; None: more than 50.

    Args:
        distance: What the interval's half must stay under, above 0.
        spread: The standard deviation between repeats.
    """
    for number in range(_MIN_GROUP, _MOST_REPEATS + 1):
        if student_t(2 * number - 2) * spread * math.sqrt(2 / number) < distance:
            return number
    return None


def student_t(freedom: int) -> float:
    """Student's t at 97.5 %, within 0.2 %."""
    assert freedom >= 1, "no spread without two values"
    return _T[freedom - 1] if freedom <= len(_T) else _Z + 2.4 / freedom


@cache
def _pairs_left_out(num_before: int, num_after: int) -> Optional[int]:
    """How many of the sorted pairwise distances lie outside the exact 95 % interval on each side; None: too few runs.

    It is the largest k with P(Mann and Whitney's U <= k) at most 2.5 %, less than every pair.
    """
    if num_before * num_after > _MOST_REPEATS * _MOST_REPEATS:
        return None
    counts = _arrangements(num_before, num_after)
    total, passed = sum(counts), 0
    for at, number in enumerate(counts):
        passed += number
        if passed / total > (1 - CONFIDENCE) / 2:
            return at - 1 if at else None
    return None


def _arrangements(num_before: int, num_after: int) -> list[int]:
    """Of all orders of the two groups, how many have U = 0, 1, 2, ...: the Gaussian binomial's coefficients."""
    size = num_before * num_after + 1
    counts = [1] + [0] * (size - 1)
    for k in range(1, num_before + 1):
        up, down = num_after + k, k
        for at in range(size - 1, up - 1, -1):
            counts[at] -= counts[at - up]
        for at in range(down, size):
            counts[at] += counts[at - down]
    return counts
