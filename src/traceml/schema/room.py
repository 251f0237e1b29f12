"""Defines what is kept of an allocation that found no room.

Times are nanoseconds of CLOCK_MONOTONIC, sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class OutOfMemory:
    """An allocation that found no room, whether or not the script caught it: when, in which phase, how much it was."""

    rank: int
    at_ns: int
    step: int
    phase: str  # a phase's name, a rest, or `region:<name>`: what was open
    device: int
    requested_bytes: int
    capacity_bytes: Optional[int] = None
    free_bytes: Optional[int] = None  # on the device, outside the allocator
