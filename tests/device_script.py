"""Simulates a device beside a host: streams that work off a queue, events, and a recorder that polls at step ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from tests.edge_script import MS, EdgeScript
from traceml.analysis.device import may_have_event
from traceml.analysis.steps import StepBuilder, Taken
from traceml.schema.records import Watching
from traceml.wire import edges

POLLED = (edges.FORWARD, edges.BACKWARD, edges.OPTIMIZER, edges.STEP_END, edges.STEP_FAILED)
LAUNCH_S = 5e-6  # from the host's call to the device's start


@dataclass(frozen=True)
class Recorded:
    """An event: its edge, when it is really done (s on the host's clock), on which device."""

    index: int
    done: float
    device: int


class DeviceScript(EdgeScript):
    """An EdgeScript whose edges have events; `kernel(8)` queues 8 ms of work on the current stream.

    Args:
        infers: As in EdgeScript.
        offset_s: Host time minus device time.
        drift: How much faster than the host's the device's clock goes, as a share.
        has_polls: Whether the recorder tells what its polls found.
        probes: Whether it also asks for the event before, where forward, backward and optimizer open and a step ends.
    """

    def __init__(
        self,
        *,
        infers: bool = False,
        offset_s: float = 7.0,
        drift: float = 0.0,
        has_polls: bool = True,
        probes: bool = False,
    ) -> None:
        super().__init__(infers=infers)
        self.probes = probes
        self.found_done: Optional[int] = None
        self.poll_delay_ms = 0.02  # from a step's end to the polls behind it
        self.offset_s, self.drift, self.has_polls = offset_s, drift, has_polls
        self.device, self.stream = 0, 0
        self.free: dict[tuple[int, int], float] = {}
        self.busy: list[tuple[float, float]] = []  # of kernels, s on the host's clock
        self.steps_events: list[list[Recorded]] = [[]]  # of the steps that are not told yet
        self.told: dict[int, Recorded] = {}  # the newest told event of each device
        self.chain: Optional[int] = None  # the device whose chain is being told
        self.ends: list[Recorded] = []  # the truth: the events at the steps' ends
        self.end_stamps: list[float] = []  # and the host's stamps there
        self.eventless: set[int] = set()  # codes that get no event here
        self.drains = True  # the run's end waits for the device, as a script does that prints its loss

    # -- the host's and the device's work -----------------------------------------------------------------------------

    def kernel(self, ms: float) -> DeviceScript:
        place = (self.device, self.stream)
        start = max(self.now + LAUNCH_S, self.free.get(place, 0.0))
        self.free[place] = start + ms * MS
        self.busy.append((start, start + ms * MS))
        return self

    def item(self) -> DeviceScript:
        """The host waits for everything it queued on this stream."""
        self.now = max(self.now, self.free.get((self.device, self.stream), 0.0) + LAUNCH_S)
        return self

    def edge(self, code: int) -> DeviceScript:
        event, before = None, self.steps_events[-1][-1:]
        if may_have_event(code) and code not in self.eventless:
            done = max(self.now + LAUNCH_S, self.free.get((self.device, self.stream), 0.0))
            event = Recorded(len(self.codes), done, self.device)
            self.steps_events[-1].append(event)
        super().edge(code)
        if self.found_done is not None and self.has_polls:
            self.value(edges.DEVICE_READY, self.found_done)
        self.found_done = None
        if event is not None and self.probes and code in POLLED:
            for newest in before:
                self.asks(newest)
        return self

    def does(self, code: int, *, host: float, device: float) -> DeviceScript:
        """A phase that takes the host so many ms, and gives the device so many to do, at its begin."""
        self.edge(code)
        if device:
            self.kernel(device)
        self.wait(host)
        return self.edge(code + edges.CLOSE)

    def end(self, *, failed: bool = False, numbered: bool = False) -> DeviceScript:
        super().end(failed=failed, numbered=numbered)
        self.close_step()
        return self

    def close_step(self) -> None:
        """What the recorder does behind a step: it looks which events are done, and tells their times."""
        if self.steps_events[-1]:
            self.ends.append(self.steps_events[-1][-1])
            self.end_stamps.append(self.stamps[self.steps_events[-1][-1].index])
            self.wait(self.poll_delay_ms)
        self.steps_events.append([])
        self.poll()

    def asks(self, event: Recorded) -> None:
        """A poll, told behind the newest edge."""
        self.value(edges.DEVICE_READY if event.done <= self.now else edges.DEVICE_PENDING, event.index)

    def run_ahead_ms(self, step: int) -> float:
        """The truth: how long after the host the device came to a step's end."""
        return (self.ends[step - 1].done - self.end_stamps[step - 1]) / MS

    def poll(self) -> None:
        while len(self.steps_events) > 1:
            events = self.steps_events[0]
            if any(event.done > self.now for event in events):
                if self.has_polls:
                    self.value(edges.DEVICE_PENDING, events[-1].index)
                break
            for event in events:
                self.tell(event)
            if events:
                self.found_done = events[-1].index  # said behind the next edge: it is true of that one's stamp
            del self.steps_events[0]

    def tell(self, event: Recorded) -> None:
        before = self.told.get(event.device)
        if before is None or self.chain != event.device:
            origin = event if before is None else before
            self.value(edges.DEVICE_FROM, event.device << edges.DEVICE_BITS | origin.index)
            self.chain = event.device
        if before is not None:
            units = round((event.done - before.done) * (1 + self.drift) * 1e7)
            self.value(edges.DEVICE_AT, (event.index - before.index) << edges.TIME_BITS | units + edges.TIME_BIAS)
        self.told[event.device] = event

    def lose(self, *, num_steps: int = 1) -> DeviceScript:
        """The oldest steps' events never resolve: they are dropped and counted."""
        for _ in range(num_steps):
            self.value(edges.DEVICE_LOST, len(self.steps_events.pop(0)))
        self.told.clear()
        self.chain = None
        return self

    def holds_back(self, num_steps: int) -> DeviceScript:
        """The driver's queue is full: the host waits until no more than so many steps lie before the device."""
        if len(self.ends) > num_steps:
            self.now = max(self.now, self.ends[-1 - num_steps].done)
        return self

    def built(self, *, tail_ms: float = 0.0) -> tuple[StepBuilder, Taken, Taken]:
        if self.drains:
            self.now = max([self.now, *self.free.values()]) + LAUNCH_S
            self.edge(edges.RUN_END).poll()
        return super().built(tail_ms=tail_ms)

    def builder(self, cursor: str = "") -> StepBuilder:
        builder = super().builder(cursor)
        builder.learn(Watching((), infers=self.infers, clock="device"))
        return builder
