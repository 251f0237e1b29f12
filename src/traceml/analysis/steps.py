"""Builds step records from raw edges: exclusive time by a stack of open phases, so that the parts add up to the period.

Feeding is incremental and restartable: `take` returns what is finished with a cursor, and a builder made from that
cursor goes on exactly there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Callable, Final, Sequence

from traceml.analysis.device import device_times
from traceml.analysis.division import (
    BETWEEN,
    SLOT_OF,
    Draft,
    Period,
    record_of,
)
from traceml.analysis.ends import Ends
from traceml.analysis.events import StepEvents
from traceml.analysis.halts import Halts, left_out
from traceml.analysis.inference import CLOSES, CLOSES_EXPLICIT, COUNT_MASK, SLOTS
from traceml.analysis.knowledge import advanced, learned
from traceml.analysis.live import open_at_end
from traceml.analysis.order import in_order
from traceml.analysis.repeats import RepeatedSteps
from traceml.analysis.traced import MOST, STEP_EDGES
from traceml.schema import phases
from traceml.schema.records import Event, Halt, LiveSlot, LoaderInfo, Segment, StepRecord, Watching
from traceml.wire import edges
from traceml.wire.codec import Body
from traceml.wire.ring import EdgeBatch

_CLOSE: Final = edges.CLOSE
_FIRST_VALUE: Final = edges.FIRST_VALUE
_LAST_CLOSE: Final = edges.FIRST_REGION + phases.MAX_REGIONS + edges.CLOSE


@dataclass(frozen=True)
class Taken:
    """What was finished since the last take; to be stored together with the cursor, in one transaction."""

    steps: tuple[StepRecord, ...]
    segments: tuple[Segment, ...]
    events: tuple[Event, ...]
    cursor: str


class StepBuilder(RepeatedSteps):
    """Turns one rank's edges into records; steps are inferred where the ring says so, until the first `trace_step`.

    Args:
        rank: Used until the ring says which rank it is.
        cursor: From an earlier builder's Taken; empty for the ring's start.
    """

    def __init__(self, *, rank: int = 0, cursor: str = "") -> None:
        super().__init__(rank)
        self._events = StepEvents()
        self._halts = Halts()
        self._in_gap = False  # edges were lost: wait for the next numbered step end
        self._was_told = False  # whether steps are inferred
        self._cursor = cursor
        if cursor:
            self._go_on(cursor)

    # -- what is told -------------------------------------------------------------------------------------------------

    def learn(self, body: Body) -> None:
        """Takes a message in: identity, loaders, regions, what is watched, faults, the end."""
        self.state = learned(self.state, body)
        if isinstance(body, LoaderInfo):
            self._fetches.loaders[body.number] = body
        elif isinstance(body, Halt):
            self._halts.learn(body)
        elif isinstance(body, Watching):
            if not self._was_told:  # a later one may be read behind the first trace_step
                self._was_told = True
                self._is_inferring = self._is_inferring or (body.infers and not self._cursor)
            self._set_clock(body.clock)
        else:
            self._events.learn(body)

    def feed(self, batch: EdgeBatch) -> None:
        """Takes published edges in; they follow the ones before, or say how many were lost between."""
        if batch.num_lost:
            self._lose(batch.num_lost, batch.position)
        if self._timeline.is_on:
            self._timeline.keep(batch)
        stamps, codes = in_order(batch)
        first = self._skip_gap(stamps, codes) if self._in_gap else 0
        if not self._last_ns and first < len(codes):
            self._last_ns = self._start_ns() or int(stamps[first] * 1e9)
        while first < len(codes):
            until = len(codes)
            if self._may_repeat:
                first = self._repeat(stamps, codes, first, batch.position)
                until = codes.find(edges.STEP_END, first) + 1 or until
            self._follow(stamps[first:until], codes[first:until], batch.position + first)
            first = until
        self.position = batch.end

    def _follow(self, stamps: list[float], codes: bytes, position: int) -> None:  # noqa: C901, PLR0912, PLR0915  # one tight loop
        """Takes edges in, one after the other; the first stands at absolute `position`."""
        last, stack, period = self._last_ns, self._stack, self._period
        acc, seen = period.acc, period.seen
        infers = self._is_inferring
        slots, closes, opened, closed = self._means()
        for at, (code, stamp) in enumerate(zip(codes, stamps), position):
            if code >= _FIRST_VALUE:
                if not 0 <= stamp < MOST:
                    continue  # torn, or not a number
                if code >= edges.DEVICE_FROM:
                    self._device_value(code, int(stamp), last, at)
                elif infers and code >= edges.UPDATED:
                    self._last_ns, self.position = last, at + 1
                    (self._updated if code == edges.UPDATED else self._skipped)(int(stamp))
                    period = self._period
                    acc, seen = period.acc, period.seen
                else:
                    self._value(code, int(stamp))
                continue
            now = int(stamp * 1e9)
            if now > last:
                acc[stack[-1]] += now - last
                last = now
            elif now < last:
                continue  # a slot that a fault of ours left unfilled: it holds an older edge, or none
            if code < _CLOSE:
                slot = slots[code]
                self._last_ns = last
                opened(slot)
                if period is not self._period:  # a cut of the startup replaces it
                    period = self._period
                    acc, seen = period.acc, period.seen
                stack.append(slot)
                seen[slot] = True
            elif code < _LAST_CLOSE:
                slot = slots[code - _CLOSE]
                if stack[-1] == slot and len(stack) > 1:
                    stack.pop()
                else:
                    self._close_across(slot)
                if closes[slot]:
                    self._last_ns, self.position = last, at + 1
                    closed(slot)
                    if period is not self._period:  # a cut at an update replaces it
                        period = self._period
                        acc, seen = period.acc, period.seen
            else:
                self._last_ns, self.position = last, at + 1
                self._control(code)
                stack, period = self._stack, self._period
                acc, seen = period.acc, period.seen
                if infers and not self._is_inferring:
                    infers = False
                    slots, closes, opened, closed = self._means()
        self._last_ns = last

    # -- what is asked ------------------------------------------------------------------------------------------------

    def take(self) -> Taken:
        """What is finished since the last take."""
        steps: list[StepRecord] = []
        rank, held, draft = self.state.identity.rank, self._held, None
        events = self._events.late(rank=rank)
        while held and held[0].is_settled and not held[0].fetches.undecided:
            draft = held.popleft()
            if self._startup is not None:
                self._end_startup(draft.start_ns)
            start_ns = draft.start_ns
            for given in self._records_of(draft, rank):
                halts = self._halts.during(start_ns, given.end_ns)
                start_ns, record = given.end_ns, left_out(given) if halts else given
                if halts and self._halts.is_news(halts):
                    events.append(self._events.halted(record, halts))
                steps.append(record)
                events.extend(self._events.told(rank=rank, step=record.step, end_ns=record.end_ns))
                if self._events.stands_out(record):
                    events.extend(self._events.of(record, num_before=self._num_inferred))
        if draft is not None:
            self._cursor = self._cursor_behind(draft)
        segments, self._segments = tuple(self._segments), []
        if steps:
            serial = self._fetches.training_serial
            loader = None if serial is None else serial >> edges.SERIAL_BITS
            self.state = advanced(self.state, steps, training_loader=loader)
            self._tell_ends()
        return Taken(tuple(steps), segments, tuple(events), self._cursor)

    def _records_of(self, draft: Draft, rank: int) -> Sequence[StepRecord]:
        if not draft.repeated:
            record = record_of(draft, rank=rank, was_counted=self._was_counted)
            return (record if draft.device is None else record._replace(device=device_times(draft, record)),)
        records = draft.repeated
        if self._was_counted and not draft.was_counted:
            records = [record._replace(num_samples=None, num_tokens=None) for record in records]
        if records[0].rank != rank:  # it has said since who it is
            records = [record._replace(rank=rank) for record in records]
        return records

    def live(self, tail: EdgeBatch, *, now_ns: int, alive: bool) -> LiveSlot:
        """What the rank does now: its open phase, since when, and the step that is being measured."""
        opened = open_at_end(tail, stack=list(self._stack), since_ns=self._last_ns)
        step, phase = self._stands(opened)
        rank, halted, by_script = self.state.identity.rank, self._halts.now(), opened.by_script
        return LiveSlot(rank, step, phase, opened.since_ns, now_ns, alive, halted, by_script=by_script)

    def finish(self, tail: EdgeBatch, *, end_ns: int) -> Taken:
        """The run is over: the unfinished rest becomes the tail, or the startup where no step ever ended."""
        self.feed(tail)
        end_ns = max(self._last_ns, end_ns if self._run_end_ns is None else min(end_ns, self._run_end_ns))
        if self._last_ns:
            self._period.acc[self._stack[-1]] += end_ns - self._last_ns
        if self._is_inferring:
            self._flush_inferred()
        self._fetches.give_up()
        self._timeline.settle(self._held, is_over=True)
        if self._step:
            self._add_segment("tail", self._start_ns(), end_ns, self._period, self._fetches.period)
        else:
            self._fold_into_startup()
            self._end_startup(end_ns)
        self._last_ns = self._period_ns = end_ns
        self._period = Period.fresh()
        taken = self.take()
        left = self._events.left(rank=self.state.identity.rank, step=self._step)
        return replace(taken, events=(*taken.events, *left))

    def _means(self) -> tuple[list[int], list[bool], Callable[[int], None], Callable[[int], None]]:
        """What the codes mean: the slot of each, which closes count, and what to do."""
        if self._is_inferring:
            return SLOTS, CLOSES, self._opened_inferring, self._closed_inferring
        return SLOT_OF, CLOSES_EXPLICIT, self._opened, self._closed

    # -- gaps and restarts --------------------------------------------------------------------------------------------

    def _lose(self, num_lost: int, position: int) -> None:
        self._in_gap = True
        self._timeline.settle(self._held, is_over=True)
        self._timeline.lose(position)
        self._stack = [BETWEEN]
        self._period = Period.fresh()
        self._fetches.give_up()
        self._fetches.restart_period()
        self._forget_pieces()
        self.state = replace(self.state, num_lost_edges=self.state.num_lost_edges + num_lost)

    def _skip_gap(self, stamps: list[float], codes: bytes) -> int:
        """The index behind the next numbered step end, or update; the steps up to it are lost and counted."""
        at = 0  # the newest edge
        for i in range(1, len(codes)):
            at = at if codes[i - 1] >= edges.FIRST_VALUE else i - 1
            is_step = codes[i] == edges.STEP_NUMBER and codes[at] in STEP_EDGES
            if is_step or (codes[i] == edges.UPDATED and codes[i - 1] == edges.OPTIMIZER + edges.CLOSE):
                if is_step and self._is_inferring:
                    self._is_inferring, self._num_inferred = False, self._step
                step = self._num_inferred + int(stamps[i]) if is_step else self._skip_to(int(stamps[i]))
                num_lost = self.state.num_lost_steps + max(0, step - self._step)
                self.state = replace(self.state, num_lost_steps=num_lost)
                self._last_ns = self._period_ns = int(stamps[at] * 1e9)
                self._step, self._in_gap = step, False
                return i + 1
        return len(codes)

    def _skip_to(self, update: int) -> int:
        return self._ends.skip_to(update & COUNT_MASK, num_steps=self._step)

    def _cursor_behind(self, draft: Draft) -> str:
        return json.dumps(
            {
                "position": draft.position,
                "step": draft.step,
                "end_ns": draft.end_ns,
                "has_forward": self._has_forward,
                "was_counted": self._was_counted,
                "serial": draft.serial,
                "num_fetches": draft.num_fetches,
                "training": self._fetches.known_training(),
                "inference": draft.inference,
                "num_inferred": self._num_inferred,
                "ends": vars(self._ends) if self._ends.total and draft.inference is None else None,
                "timeline": self._timeline.taken(draft) if draft.timeline is not None else None,
            }
        )

    def _go_on(self, cursor: str) -> None:
        found = json.loads(cursor)
        self.position, self._step = found["position"], found["step"]
        self._last_ns = self._period_ns = found["end_ns"]
        self._events.stored_ns = self._last_ns
        if self._step:  # a ring that has nothing more to say was a rank's all the same
            self.state = replace(self.state, first_step=1, last_step=self._step)
        self._has_forward, self._was_counted = found["has_forward"], found["was_counted"]
        inference, self._num_inferred = found.get("inference"), found.get("num_inferred", 0)
        training = found["training"] if inference is None else inference["fetches"]["training"]
        self._fetches.resume(found["serial"], found["num_fetches"], training)
        if inference is not None:
            self._resume_inferring(inference)
        elif found.get("ends"):
            self._ends = Ends(**found["ends"])
        if found.get("timeline"):
            self._timeline.resume(found["timeline"], self.position, serial=found["serial"], inference=inference)
        self._tell_ends()
