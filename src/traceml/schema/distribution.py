"""Keeps a distribution in mergeable log buckets: quantiles within 1 %, extremes and sums exact."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Optional, Sequence

_GAMMA = 1.02  # neighbouring bucket borders; the geometric middle is at most 1 % from any value in the bucket
_LOG_GAMMA = math.log(_GAMMA)
_ROUNDING = 1e-9  # 0.95 x 20 is a little more than 19


def bucket_of(value: int) -> int:
    """The bucket that holds a non-negative whole value; 0 has a bucket of its own, -1."""
    return -1 if value <= 0 else int(math.log(value) / _LOG_GAMMA)


def buckets_of(values: Sequence[int]) -> list[int]:
    """The bucket of each value, as `bucket_of` says; half as dear."""
    log, width = math.log, _LOG_GAMMA
    return [int(log(value) / width) if value > 0 else -1 for value in values]


def middle_of(bucket: int) -> float:
    """The value that stands for a bucket, within 1 % of everything in it."""
    return 0.0 if bucket < 0 else _GAMMA ** (bucket + 0.5)


@dataclass
class Distribution:
    """A mutable, mergeable histogram of non-negative whole values (nanoseconds or bytes).

    Quantiles are within 1 %; count, total, minimum and maximum are exact. Merging loses nothing.
    """

    count: int = 0
    total: int = 0
    minimum: Optional[int] = None
    maximum: Optional[int] = None
    buckets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Iterable[int]) -> Distribution:
        """A distribution of the given values."""
        made = cls()
        for value in values:
            made.add(value)
        return made

    def add(self, value: int, times: int = 1) -> None:
        """Counts a value in, `times` times."""
        self.count += times
        self.total += value * times
        if self.minimum is None or value < self.minimum:
            self.minimum = value
        if self.maximum is None or value > self.maximum:
            self.maximum = value
        bucket = bucket_of(value)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + times

    def merge(self, other: Distribution) -> None:
        """Takes another distribution in."""
        if not other.count:
            return
        assert other.minimum is not None
        assert other.maximum is not None
        self.count += other.count
        self.total += other.total
        self.minimum = other.minimum if self.minimum is None else min(self.minimum, other.minimum)
        self.maximum = other.maximum if self.maximum is None else max(self.maximum, other.maximum)
        for bucket, times in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + times

    @property
    def mean(self) -> Optional[float]:
        """The exact mean, None without values."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float, *, num_zeros: int = 0) -> Optional[float]:
        """The least value that `share` of all do not exceed (nearest rank), None without values.

        Args:
            share: 0 to 1.
            num_zeros: Further values of 0 to count in (steps in which a phase did not occur).
        """
        num_all = self.count + num_zeros
        if not num_all:
            return None
        position = max(0, math.ceil(share * num_all - _ROUNDING) - 1)
        if position < num_zeros:
            return 0.0
        passed = num_zeros
        for bucket in sorted(self.buckets):
            passed += self.buckets[bucket]
            if position < passed:
                assert self.minimum is not None
                assert self.maximum is not None
                return float(min(max(middle_of(bucket), self.minimum), self.maximum))
        return None if self.maximum is None else float(self.maximum)

    def share_at_least(self, value: float, *, num_zeros: int = 0) -> float:
        """The share (0..1) of values that are at least `value`, within a bucket's width."""
        num_all = self.count + num_zeros
        if not num_all:
            return 0.0
        return sum(times for bucket, times in self.buckets.items() if middle_of(bucket) >= value) / num_all

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(bucket, times), smallest bucket first."""
        return iter(sorted(self.buckets.items()))
