"""Adds up numbers of which some are not known: those add nothing, and where none is known there is no sum."""

from __future__ import annotations

from typing import Iterable, Optional, TypeVar

Number = TypeVar("Number", int, float)


def sum_known(values: Iterable[Optional[Number]]) -> Optional[Number]:
    """The sum of those that are known; None when none is, or there are none."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def plus(left: Optional[int], right: Optional[int]) -> Optional[int]:
    """Both together: `sum_known` of two, without a list, at each fetch of a step."""
    if right is None:
        return left
    return right if left is None else left + right
