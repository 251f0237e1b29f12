"""Checks the types of what stands in a table's columns: a damaged file must not become a wrong number."""

from __future__ import annotations

from typing import Any, Final, FrozenSet, Iterable, Sequence

from traceml.store.packing import DamagedContent

_MOST: Final = 1 << 62  # 146 years in ns, and far above every size

Kinds = FrozenSet[type]
"""The types a column may hold."""


def check_columns(rows: Sequence[tuple[Any, ...]], kinds: Sequence[Kinds]) -> None:
    """Looks at every value of every column. About 0.1 us a value.

    Raises:
        DamagedContent: One has a type that its column never gets.
    """
    for column, allowed in zip(zip(*rows), kinds):
        if not allowed.issuperset(map(type, column)):
            raise DamagedContent("a value of the wrong type")


def check_amounts(rows: Sequence[tuple[Any, ...]], columns: Iterable[int]) -> None:
    """Looks at every number of the columns that hold times, sizes and counts. About 0.1 us a value.

    Raises:
        DamagedContent: One is negative, not finite, or larger than any can be.
    """
    for at in columns:
        known = [row[at] for row in rows if row[at] is not None]
        if known and not (min(known) >= 0 and max(known) <= _MOST):
            raise DamagedContent("a time, size or count that cannot be")
