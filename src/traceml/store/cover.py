"""Chooses the pieces that cover a range of steps: raw ones, blocks, coarser blocks; each step exactly once."""

from __future__ import annotations

from typing import Final, NamedTuple, Optional

from traceml.store.packing import DamagedContent
from traceml.store.tables import SPANS, TOP_LEVEL

#: Raw steps a rank keeps from its start while the cap allows: warm-up is judged on them.
NUM_FIRST_STEPS: Final = 2048


class Extent(NamedTuple):
    """The steps of a rank, and which levels still hold which of them.

    Level k holds its pieces up to step `head[k]` and those after step `low[k]`; the highest level holds all. Finer
    levels hold less: `head` grows and `low` falls with the level. A block whose last step is not there yet is not held,
    except for a part of it, up to `low` of the level below, that was folded early to keep the cap.
    """

    first_step: int
    last_step: int
    head: tuple[int, ...]
    low: tuple[int, ...]


class Stretch(NamedTuple):
    """Neighbouring pieces of one level, from step `first` to step `last`."""

    level: int
    first: int
    last: int


def block_start(level: int, step: int) -> int:
    """The first step of the block of a level that holds the step."""
    return (step - 1) // SPANS[level] * SPANS[level] + 1


def complete_until(level: int, last_step: int) -> int:
    """The last step of the newest complete block of a level; 0 without one."""
    return last_step // SPANS[level] * SPANS[level]


def piece_end(extent: Extent, level: int, step: int) -> Optional[int]:
    """The last step of the piece of this level that holds the step; None when the level does not hold it."""
    if level < TOP_LEVEL and extent.head[level] < step <= extent.low[level]:
        return None
    if level == 0:
        return step
    start = block_start(level, step)
    end = start + SPANS[level] - 1
    if end <= extent.last_step:
        return end
    folded_until = extent.low[level - 1]
    return folded_until if step <= folded_until else None


def widen(extent: Extent, *, first: int, last: int) -> tuple[int, int]:
    """The smallest range around first..last whose edges are edges of pieces that are held.

    Raises:
        DamagedContent: The extent contradicts itself.
    """
    wide_last = piece_end(extent, _finest(extent, last), last)
    assert wide_last is not None
    return block_start(_finest(extent, first), first), wide_last


def _finest(extent: Extent, step: int) -> int:
    for level in range(TOP_LEVEL + 1):
        if piece_end(extent, level, step) is not None:
            return level
    raise DamagedContent(f"no level holds step {step}")


def stretches(extent: Extent, *, first: int, last: int, level: int, raw_until: int = 0) -> list[Stretch]:
    """The pieces of a widened range, in step order, disjoint and without a gap.

    Args:
        extent: What is held.
        first: The range's first step, an edge of a held piece (see `widen`).
        last: Its last step, likewise.
        level: The level to take where it fits; finer ones at unaligned edges, coarser ones where only those are left.
        raw_until: Raw steps are preferred up to this one.

    Raises:
        DamagedContent: The extent contradicts itself.
    """
    found: list[Stretch] = []
    at = first
    while at <= last:
        piece = _piece_at(extent, at=at, last=last, level=0 if at <= raw_until else level)
        if piece.level == 0 and at <= raw_until:
            piece = piece._replace(last=min(piece.last, raw_until))
        if found and found[-1].level == piece.level:
            found[-1] = found[-1]._replace(last=piece.last)
        else:
            found.append(piece)
        at = piece.last + 1
    return found


def _piece_at(extent: Extent, *, at: int, last: int, level: int) -> Stretch:
    for candidate in (*range(level, -1, -1), *range(level + 1, TOP_LEVEL + 1)):
        end = piece_end(extent, candidate, at)
        if end is None:
            continue
        if candidate == 0:
            return Stretch(0, at, _raw_end(extent, at=at, last=last, level=level))
        if block_start(candidate, at) == at and end <= last:
            return Stretch(candidate, at, end)
    raise DamagedContent(f"nothing covers step {at}")


def _raw_end(extent: Extent, *, at: int, last: int, level: int) -> int:
    zone_end = extent.head[0] if at <= min(extent.head[0], extent.low[0]) else extent.last_step
    if level:  # raw only up to where a block can begin
        zone_end = min(zone_end, block_start(1, at) + SPANS[1] - 1)
    return min(zone_end, last)
