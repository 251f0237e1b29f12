"""Writes raw edges as a training would: a tiny language of what happens, for how long."""

from __future__ import annotations

from array import array
from typing import Optional

from traceml.analysis.steps import StepBuilder, Taken
from traceml.schema.records import RankIdentity, StepRecord, Watching
from traceml.wire import edges
from traceml.wire.ring import EdgeBatch

MS = 1e-3
START_S = 100.0


class EdgeScript:
    """Each call appends edges; times are milliseconds. `fetch(20)` waits 20 ms for a batch of the current iterator.

    Args:
        infers: There is no `trace_step`: the ring says that steps are to be inferred.
    """

    def __init__(self, *, infers: bool = False) -> None:
        self.infers = infers
        self.num_updates = 0
        self.now = START_S
        self.stamps: list[float] = []
        self.codes: list[int] = []
        self.num_steps = 0

    def edge(self, code: int) -> EdgeScript:
        self.codes.append(code)
        self.stamps.append(self.now)
        return self

    def value(self, code: int, number: float) -> EdgeScript:
        self.codes.append(code)
        self.stamps.append(number)
        return self

    def wait(self, ms: float) -> EdgeScript:
        self.now += ms * MS
        return self

    def phase(self, code: int, ms: float) -> EdgeScript:
        return self.edge(code).wait(ms).edge(code + edges.CLOSE)

    def iterator(self, loader: int = 1, epoch: int = 1, ms: float = 0.0) -> EdgeScript:
        return self.switch(loader, epoch).phase(edges.ITERATOR, ms)

    def switch(self, loader: int = 1, epoch: int = 1) -> EdgeScript:
        return self.value(edges.SERIAL, loader << edges.SERIAL_BITS | epoch)

    def fetch(self, ms: float) -> EdgeScript:
        return self.phase(edges.INPUT, ms)

    def exhaust(self, ms: float) -> EdgeScript:
        return self.edge(edges.INPUT).wait(ms).edge(edges.CLOSE_NO_BATCH)

    def begin(self) -> EdgeScript:
        return self.edge(edges.STEP_BEGIN)

    def end(self, *, failed: bool = False, numbered: bool = False) -> EdgeScript:
        self.edge(edges.STEP_FAILED if failed else edges.STEP_END)
        self.num_steps += 1
        return self.value(edges.STEP_NUMBER, self.num_steps) if numbered else self

    def work(self, forward: float = 3, backward: float = 5, optimizer: float = 2) -> EdgeScript:
        return self.phase(edges.FORWARD, forward).phase(edges.BACKWARD, backward).phase(edges.OPTIMIZER, optimizer)

    def step(self, forward: float = 3, backward: float = 5, optimizer: float = 2) -> EdgeScript:
        return self.begin().work(forward, backward, optimizer).end()

    def learn(self, forward: float = 3, backward: float = 5) -> EdgeScript:
        """Forward and backward, without an update."""
        return self.phase(edges.FORWARD, forward).phase(edges.BACKWARD, backward)

    def updated(self, optimizer: int = 1) -> EdgeScript:
        """What stands behind an optimizer step outside a step."""
        self.num_updates += 1
        return self.value(edges.UPDATED, optimizer << edges.UPDATE_BITS | self.num_updates)

    def update(self, ms: float = 2, optimizer: int = 1) -> EdgeScript:
        return self.phase(edges.OPTIMIZER, ms).updated(optimizer)

    def skip(self, optimizer: int = 1) -> EdgeScript:
        """A GradScaler left its optimizer alone."""
        return self.value(edges.SKIPPED, optimizer << edges.UPDATE_BITS | self.num_updates)

    def batch(self, first: int = 0, last: Optional[int] = None, *, num_lost: int = 0) -> EdgeBatch:
        return EdgeBatch(first, array("d", self.stamps[first:last]), bytes(self.codes[first:last]), num_lost)

    def builder(self, cursor: str = "") -> StepBuilder:
        builder = started_builder(cursor)
        builder.learn(Watching((), infers=self.infers))
        return builder

    def built(self, *, tail_ms: float = 0.0) -> tuple[StepBuilder, Taken, Taken]:
        """A builder that was fed all, what it took, and what its finish took."""
        builder = self.builder()
        builder.feed(self.batch())
        taken = builder.take()
        end_ns = int((self.now + tail_ms * MS) * 1e9)
        return builder, taken, builder.finish(EdgeBatch(len(self.codes), array("d"), b"", 0), end_ns=end_ns)

    def steps(self) -> list[StepRecord]:
        """All steps, those that only the run's end decides too."""
        _, taken, rest = self.built()
        return [*taken.steps, *rest.steps]


def started_builder(cursor: str = "") -> StepBuilder:
    """A builder whose process started one second before the first edge."""
    builder = StepBuilder(cursor=cursor)
    builder.learn(RankIdentity(0, 0, 1, 4711, int((START_S - 1) * 1e9)))
    return builder
