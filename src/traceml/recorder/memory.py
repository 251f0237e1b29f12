"""Reads an accelerator's memory: what is held now and then, and a step's peak; the host's is sampled from outside.

Reading the counters builds a dictionary of hundreds of numbers, too dear for every step. So the step that follows each
interval is measured: its peaks are reset at its begin and read at its end. No peak is lost over it: what stood there
before the reset is that of all the steps since the last one (docs/decisions/0007).
"""

from __future__ import annotations

from typing import Any, Callable, Final, Mapping, Optional

from traceml.recorder.accelerator import Accelerator
from traceml.recorder.peaks import Peaks
from traceml.recorder.pen import Pen
from traceml.schema.records import MemoryReading
from traceml.wire import edges

HOOK: Final = "memory"
_INTERVAL_S: Final = 0.5


class Memory:
    """The readings of one rank's allocator, at the ends of its steps."""

    def __init__(
        self,
        pen: Pen,
        accelerator: Accelerator,
        *,
        rank: int,
        device: Callable[[], int],
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._pen, self._accelerator, self._rank = pen, accelerator, rank
        self._device, self._interval_s = device, interval_s
        self._peaks = Peaks(pen, accelerator)
        self._capacities: dict[int, int] = {}
        self._measured: Optional[int] = None  # the device whose peaks are those of the step that runs
        self._peak_before: Optional[int] = None  # of the steps before it, since the last reading
        self._due = 0.0
        self._is_on = False

    def start(self) -> None:
        """Reads from the next step's end on."""
        self._pen.guard.register(HOOK, self.stop)
        self._peaks.install()
        self._is_on = True

    def stop(self) -> None:
        """Reads no more."""
        self._is_on = False

    def step_ended(self, now: float) -> None:
        """Behind a step's end, at `now` seconds; on most of them nothing is read."""
        if not self._is_on or (self._measured is None and now < self._due):
            return
        try:
            if self._measured is not None:
                self._end_measuring(now)
            if now >= self._due:
                self._due = now + self._interval_s
                self._begin_measuring()
        except BaseException as error:  # noqa: BLE001  # guard
            self._measured = None
            self._pen.guard.fault(HOOK, error)

    def _begin_measuring(self) -> None:
        device = self._device()
        counters = self._peaks.read(device)
        self._peak_before = self._peaks.highest(device, counters, "allocated_bytes")
        self._peaks.begin(device, counters)
        self._measured = device

    def _end_measuring(self, now: float) -> None:
        device, self._measured = self._measured, None
        assert device is not None
        counters = self._peaks.read(device)
        allocated = self._peaks.highest(device, counters, "allocated_bytes")
        reserved = self._peaks.highest(device, counters, "reserved_bytes")
        if allocated is not None:
            self._pen.value(edges.STEP_PEAK, allocated)
        if reserved is not None:
            self._pen.value(edges.STEP_PEAK_RESERVED, reserved)
        self._send(now, device, counters, allocated)

    def _send(self, now: float, device: int, counters: Mapping[str, Any], peak: Optional[int]) -> None:
        before = self._peak_before
        self._pen.ring.send(
            MemoryReading(
                rank=self._rank,
                at_ns=int(now * 1e9),
                step=self._pen.num_steps,
                source=self._accelerator.kind,
                allocated_bytes=_current(counters, "allocated_bytes") or 0,
                reserved_bytes=_current(counters, "reserved_bytes"),
                peak_bytes=peak if peak is None or before is None else max(peak, before),
                capacity_bytes=self._capacity_bytes(device),
            )
        )

    def _capacity_bytes(self, device: int) -> int:
        if device not in self._capacities:
            self._capacities[device] = self._accelerator.capacity_bytes(device)
        return self._capacities[device]


def _current(counters: Mapping[str, Any], name: str) -> Optional[int]:
    found: Optional[int] = counters.get(name, {}).get("all", {}).get("current")
    return found
