"""Reads the accelerator's allocator now and then; without one, the collector samples the process from outside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final, Optional, Protocol

from traceml.recorder.pen import Pen
from traceml.schema.records import MemoryReading

HOOK: Final = "memory"
_INTERVAL_S: Final = 0.5  # memory_stats() walks the allocator's counters: too dear for every step


@dataclass(frozen=True)
class Held:
    """What an allocator holds at a moment, in bytes."""

    allocated_bytes: int
    reserved_bytes: Optional[int]
    peak_bytes: Optional[int]
    capacity_bytes: Optional[int]


class Allocator(Protocol):
    """An accelerator's memory, read without a synchronise and without resetting anything of the user's."""

    source: str

    def held(self) -> Held:
        """What it holds now."""
        ...


class CudaAllocator:
    """The caching allocator of the current CUDA device. Nothing here resets the user's peak."""

    source = "cuda"

    def __init__(self) -> None:
        self._cuda = sys.modules["torch"].cuda
        self._capacity: dict[int, int] = {}

    def held(self) -> Held:
        """One call of `memory_stats` of the current device."""
        device = self._cuda.current_device()
        stats = self._cuda.memory_stats(device)
        if device not in self._capacity:
            self._capacity[device] = self._cuda.get_device_properties(device).total_memory
        return Held(
            stats.get("allocated_bytes.all.current", 0),
            stats.get("reserved_bytes.all.current"),
            stats.get("allocated_bytes.all.peak"),
            self._capacity[device],
        )


def find_allocator() -> Optional[Allocator]:
    """The allocator in use, None while there is none. Never initialises CUDA."""
    cuda = sys.modules["torch"].cuda
    if cuda.is_available() and cuda.is_initialized():
        return CudaAllocator()
    return None


def watch(pen: Pen, allocator: Allocator, *, rank: int, interval_s: float = _INTERVAL_S) -> None:
    """Reads `allocator` at the end of the first step of each interval, into the ring."""

    def read(now: float) -> None:
        pen.memory_due = now + interval_s
        try:
            held = allocator.held()
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)
            return
        pen.ring.send(
            MemoryReading(
                rank=rank,
                at_ns=int(now * 1e9),
                step=pen.num_steps,
                source=allocator.source,
                allocated_bytes=held.allocated_bytes,
                reserved_bytes=held.reserved_bytes,
                peak_bytes=held.peak_bytes,
                capacity_bytes=held.capacity_bytes,
            )
        )

    def remove() -> None:
        pen.memory_due = float("inf")

    pen.read_memory = read
    pen.memory_due = pen.due = 0.0
    pen.guard.register(HOOK, remove)
