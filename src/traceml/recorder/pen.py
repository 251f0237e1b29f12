"""Holds what every hook writes with: the ring's columns, the index, the clock, and who may write.

An edge is `k = nxt() & mask; codes[k] = CODE; stamps[k] = clock()`. `itertools.count` reserves a slot in one C call, so
a garbage collection that starts between two of our bytecodes takes a slot of its own and harms nothing. Hooks are
closures over these names: a helper call an edge would double their cost.
"""

from __future__ import annotations

import itertools
import sys
import time
from threading import get_ident
from types import CodeType
from typing import Any, Callable, Final, Optional

from traceml.recorder.guard import Guard, say
from traceml.schema.phases import MAX_REGIONS, REGION_PREFIX, region_name
from traceml.schema.records import RegionName
from traceml.wire import edges
from traceml.wire.ring import PUBLISHED, SEAL_EDGES, RingWriter

NEVER: Final = float("inf")


class Pen:
    """One writer's state. `owner` is the thread whose edges count; None: nothing is recorded any more.

    `busy` says that a forward, backward or fetch is open: what happens inside belongs to it.
    """

    __slots__ = (
        "busy",
        "clock",
        "codes",
        "forward_class",
        "guard",
        "house_due",
        "in_step",
        "is_late",
        "iterator",
        "late_looks",
        "look",
        "mask",
        "memory_due",
        "num_failures",
        "num_steps",
        "nxt",
        "owner",
        "read_memory",
        "regions",
        "ring",
        "said",
        "skipped",
        "stamps",
        "stop",
        "stop_at",
    )

    def __init__(self, ring: RingWriter) -> None:
        self.ring, self.stamps, self.codes, self.mask = ring, ring.stamps, ring.codes, ring.num_edges - 1
        self.nxt: Callable[[], int] = itertools.count().__next__
        self.clock = time.perf_counter
        self.owner: Optional[int] = get_ident()
        self.in_step = self.busy = False
        self.num_steps = self.num_failures = self.iterator = 0
        self.house_due = SEAL_EDGES  # the edge from which on keep_house is called
        self.forward_class: Any = None
        self.look: Optional[Callable[[object], None]] = None  # looks into batches of the current iterator
        self.guard = Guard(ring.send)
        self.regions: dict[str, int] = {}
        self.said: set[str] = set()  # what the user was told once
        self.late_looks: list[Callable[[], None]] = []  # for modules that are loaded later
        self.skipped: list[CodeType] = []  # our functions that may run under a compiled frame
        self.is_late = True  # torch._dynamo is not loaded yet
        self.memory_due = NEVER
        self.read_memory: Callable[[float], None] = _no_memory
        self.stop_at = -1
        self.stop: Callable[[], None] = _no_memory_stop

    def stamp(self, code: int) -> float:
        """Writes one edge, off the hot path."""
        k = self.nxt() & self.mask
        self.codes[k] = code
        now = self.stamps[k] = self.clock()
        return now

    def clock_ns(self) -> int:
        """Now, on the edges' clock."""
        return int(self.clock() * 1e9)

    def value(self, code: int, number: float) -> None:
        """Writes one value entry."""
        k = self.nxt() & self.mask
        self.codes[k] = code
        self.stamps[k] = number

    def raised(self) -> None:
        """An exception leaves the open phase."""
        try:
            self.stamp(edges.RAISED)
        except Exception as error:  # noqa: BLE001  # ours must not hide the user's
            self.guard.fault("raised", error)

    def publish(self) -> int:
        """Numbers the newest step and publishes every edge so far; returns their absolute count."""
        j = self.nxt()
        self.codes[j & self.mask] = edges.STEP_NUMBER
        self.stamps[j & self.mask] = self.num_steps
        self.ring.header[PUBLISHED] = j + 1
        return j + 1

    def keep_house(self) -> None:
        """Every few steps, right behind a step's end: numbers it, seals whole blocks, looks for late modules."""
        end = self.publish()
        self.ring.seal(end)
        self.house_due = end + SEAL_EDGES
        for look in self.late_looks:
            look()

    def adopt(self) -> bool:
        """The calling thread starts a step: its edges count from now on, unless another thread is inside a step."""
        if self.owner is None or self.in_step:
            return False
        self.owner = get_ident()
        return True

    def region_code(self, name: str) -> int:
        """The code of a region; 0 when there are already 16 names, said once."""
        code = self.regions.get(name)
        if code is None:
            if len(self.regions) >= MAX_REGIONS:
                shown = region_name(REGION_PREFIX + name)
                say(f"region('{shown}') is not recorded: a run has at most {MAX_REGIONS} region names.")
                code = 0
            else:
                code = edges.FIRST_REGION + len(self.regions)
                self.ring.send(RegionName(len(self.regions), name))
            self.regions[name] = code
        return code

    def skip(self, function: object) -> None:
        """Keeps the compiler out of a function of ours that can run under a compiled frame."""
        self.skipped.append(function.__code__)  # type: ignore[attr-defined]
        self.is_late = True
        self.look_late()

    def look_late(self) -> None:
        """Tells torch._dynamo about our functions as soon as somebody has loaded it; we never load it ourselves."""
        frame = sys.modules.get("torch._dynamo.eval_frame")
        skip_code = getattr(frame, "skip_code", None)
        if skip_code is None:
            return
        self.is_late = False
        for code in self.skipped:
            skip_code(code)
        self.skipped.clear()


def _no_memory(_: float) -> None:
    """There is no allocator to read."""


def _no_memory_stop() -> None:
    """Nothing stops at a step."""
