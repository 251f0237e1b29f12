"""Defines what the recorder says of its own cost, and of what it gave up because of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OVERHEAD_BUDGET_PCT: Final = 1.0  # of the period, above which optional signals are given up

#: What people call the signals that can be given up, in the order in which they are.
SIGNALS: Final = {
    "gc": "garbage collection",
    "batches": "counting samples and tokens",
    "memory": "the device's memory",
    "device clock": "device times",
}


@dataclass(frozen=True)
class Bill:
    """The recorder's own time on the training thread so far, over `num_steps` steps that took `wall_ns`.

    `num_clocked` of them were clocked edge by edge; the first few steps of a run are not in it.
    """

    num_steps: int
    num_clocked: int
    own_ns: int
    wall_ns: int

    @property
    def us_per_step(self) -> float:
        """Own time of a step in microseconds."""
        return self.own_ns / 1e3 / self.num_steps

    @property
    def share(self) -> float:
        """Own time as a part of the steps' wall time."""
        return self.own_ns / self.wall_ns


@dataclass(frozen=True)
class Shed:
    """An optional signal that is not recorded any more, as tracing cost more than its budget."""

    signal: str  # of SIGNALS
    step: int  # the last one that has it
    at_ns: int  # when, behind that step's end
    us_per_step: float  # what tracing cost then
    pct: float  # the same, of the period
    signal_us: float  # how much of it was this signal's
