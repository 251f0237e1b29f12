"""Finds the few very long waits for one rank that are events, so that the other steps can be judged without them."""

from __future__ import annotations

from statistics import median
from typing import Final, Sequence

from traceml.schema.syncs import UnitSums

_MOST: Final = 3  # more of them are no event but how the run is
_MOST_OF_UNITS: Final = 0.05
_TIMES: Final = 20  # times the typical unit
_HELD: Final = 0.5  # of all that is lost: below, the headline is not theirs


def outlying(units: Sequence[UnitSums]) -> tuple[UnitSums, ...]:
    """The pieces with a wait of 20 times a typical unit and more; none where there are more than a few, or few others.

    At most 3 pieces with at most 5 % of all units, which hold at least half of what the ranks lose to one another.

    Args:
        units: The steady ones, in order; of pieces that hold many, the longest wait counts.
    """
    if not units:
        return ()
    typical_ns = median([unit.length_ns / unit.num_units for unit in units])
    found = [unit for unit in units if unit.lost.maximum >= _TIMES * typical_ns]
    num_units = sum(unit.num_units for unit in units)
    if not 0 < len(found) <= _MOST or sum(unit.num_units for unit in found) > _MOST_OF_UNITS * num_units:
        return ()
    held_ns = sum(unit.lost.maximum for unit in found)
    return tuple(found) if held_ns >= _HELD * sum(unit.lost.total for unit in units) else ()


def steps_of(unit: UnitSums) -> range:
    """The steps a piece lies in, from the one whose sync opened it on."""
    return range(unit.first_step - -(-unit.num_steps // unit.num_units), unit.last_step + 1)
