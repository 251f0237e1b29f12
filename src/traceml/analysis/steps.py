"""Builds step records from raw edges: exclusive time by a stack of open phases, so that the parts add up to the period.

Feeding is incremental and restartable: `take` returns what is finished with a cursor, and a builder made from that
cursor goes on exactly there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Callable, Final, Optional

from traceml.analysis.device import device_times
from traceml.analysis.division import (
    BACKWARD,
    BETWEEN,
    EVAL,
    FETCH,
    FORWARD,
    IN_STEP,
    NO_GRAD,
    OPTIMIZER,
    SLOT_OF,
    STARTING,
    SYNC,
    Draft,
    Period,
    record_of,
)
from traceml.analysis.ends import Ends
from traceml.analysis.events import StepEvents
from traceml.analysis.halts import Halts, left_out
from traceml.analysis.inference import CLOSES, CLOSES_EXPLICIT, SLOTS, InferredSteps
from traceml.analysis.knowledge import advanced, learned
from traceml.analysis.live import open_at_end
from traceml.analysis.order import in_order
from traceml.schema import phases
from traceml.schema.records import Event, Halt, LiveSlot, LoaderInfo, Segment, StepRecord, Watching
from traceml.wire import edges
from traceml.wire.codec import Body
from traceml.wire.ring import EdgeBatch

_CLOSE: Final = edges.CLOSE
_FIRST_VALUE: Final = edges.FIRST_VALUE
_LAST_CLOSE: Final = edges.FIRST_REGION + phases.MAX_REGIONS + edges.CLOSE
_NO_VALUE: Final = float(1 << 53)  # whole numbers up to here stand exactly in a slot
_STEP_EDGES: Final = (edges.STEP_BEGIN, edges.STEP_END, edges.STEP_FAILED)


@dataclass(frozen=True)
class Taken:
    """What was finished since the last take; to be stored together with the cursor, in one transaction."""

    steps: tuple[StepRecord, ...]
    segments: tuple[Segment, ...]
    events: tuple[Event, ...]
    cursor: str


class StepBuilder(InferredSteps):
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
        self._was_counted = False  # by hand, with count()
        self._was_told = False  # whether steps are inferred
        self._run_end_ns: Optional[int] = None
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

    def feed(self, batch: EdgeBatch) -> None:  # noqa: C901, PLR0912, PLR0915  # one tight loop
        """Takes published edges in; they follow the ones before, or say how many were lost between."""
        if batch.num_lost:
            self._lose(batch.num_lost, batch.position)
        if self._timeline.is_on:
            self._timeline.keep(batch)
        stamps, codes = in_order(batch)
        first = self._skip_gap(stamps, codes) if self._in_gap else 0
        if not self._last_ns and first < len(codes):
            self._last_ns = self._start_ns() or int(stamps[first] * 1e9)
        last, stack, period = self._last_ns, self._stack, self._period
        acc, seen = period.acc, period.seen
        infers = self._is_inferring
        slots, closes, opened, closed = self._means()
        for i, (code, stamp) in enumerate(zip(codes[first:], stamps[first:]), first):
            if code >= _FIRST_VALUE:
                if not 0 <= stamp < _NO_VALUE:
                    continue  # torn, or not a number
                if code >= edges.DEVICE_FROM:
                    self._device_value(code, int(stamp), last, batch.position + i)
                elif infers and code >= edges.UPDATED:
                    self._last_ns, self.position = last, batch.position + i + 1
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
                    self._last_ns, self.position = last, batch.position + i + 1
                    closed(slot)
                    if period is not self._period:  # a cut at an update replaces it
                        period = self._period
                        acc, seen = period.acc, period.seen
            else:
                self._last_ns, self.position = last, batch.position + i + 1
                self._control(code)
                stack, period = self._stack, self._period
                acc, seen = period.acc, period.seen
                if infers and not self._is_inferring:
                    infers = False
                    slots, closes, opened, closed = self._means()
        self._last_ns = last
        self.position = batch.end

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
            record = record_of(draft, rank=rank, was_counted=self._was_counted)
            if draft.device is not None:
                record = record._replace(device=device_times(draft, record))
            halts = self._halts.during(draft.start_ns, draft.end_ns)
            record = left_out(record) if halts else record
            if halts and self._halts.is_news(halts):
                events.append(self._events.halted(record, halts))
            steps.append(record)
            events.extend(self._events.told(rank=rank, step=draft.step, end_ns=draft.end_ns))
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

    def live(self, tail: EdgeBatch, *, now_ns: int, alive: bool) -> LiveSlot:
        """What the rank does now: its open phase, since when, and the step that is being measured."""
        opened = open_at_end(tail, stack=list(self._stack), since_ns=self._last_ns)
        step, phase = self._stands(opened)
        return LiveSlot(self.state.identity.rank, step, phase, opened.since_ns, now_ns, alive, self._halts.now())

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

    # -- edges --------------------------------------------------------------------------------------------------------

    def _opened(self, slot: int) -> None:
        self._raised.opened(slot)
        if slot == FETCH:
            if self._step == 0 and self._stack == [BETWEEN] and not self._fetches.feeds_the_same():
                self._fold_into_startup()
            if self._fetches.opening():
                self._period.move(NO_GRAD, EVAL)
        elif slot == FORWARD:
            self._has_forward = True
            self._fetches.forward()
        elif slot == BACKWARD:
            self._period.num_backwards += slot not in self._stack
        elif slot == OPTIMIZER:
            self._period.num_optimizer_steps += slot not in self._stack
        elif slot == EVAL:
            self._fetches.evaluated()
        elif slot == NO_GRAD:
            self._fetches.maybe_evaluated()

    def _closed(self, slot: int) -> None:
        acc = self._period.acc
        if slot in self._stack:
            return  # a fetch inside a fetch: the outermost one is the wait
        if slot == FETCH:
            self._fetches.fetched(acc[FETCH])
            acc[FETCH] = 0
        elif slot == STARTING:
            self._fetches.started(acc[STARTING])
            acc[STARTING] = 0
        elif slot == SYNC:
            self._synced()

    def _control(self, code: int) -> None:
        if code == edges.CLOSE_NO_BATCH:
            self._close_empty_fetch()
            self._no_batch()
        elif code == edges.RAISED:
            self._raised.left(self._stack[-1], len(self._stack))
        elif code == edges.UNWOUND:
            self._unwind()
        elif code == edges.STEP_BEGIN:
            self._begin_step()
        elif code in _STEP_EDGES:
            self._end_step(failed=code == edges.STEP_FAILED)
        elif code == edges.RUN_END:
            self._run_end_ns = self._last_ns

    def _value(self, code: int, value: int) -> None:
        period = self._period
        if code == edges.SERIAL:
            self._fetches.serial = value
        elif code == edges.USER_STEP:
            period.user_step = value
        elif code == edges.SAMPLES:
            self._fetches.counted(samples=value)
        elif code == edges.TOKENS:
            self._fetches.counted(tokens=value)
        elif code == edges.COUNTED_SAMPLES:
            period.counted_samples = value + (period.counted_samples or 0)
            self._was_counted = True
        elif code == edges.COUNTED_TOKENS:
            period.counted_tokens = value + (period.counted_tokens or 0)
            self._was_counted = True

    # -- steps and segments -------------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        if self._is_inferring:
            self._stop_inferring()
        if not self._has_forward:
            self._fetches.forward()
        if self._step == 0 and not self._fetches.period.training and not self._fetches.period.undecided:
            self._fold_into_startup()  # no fetch feeds this step: the startup ends here
        self._fetches.step_begins()
        self._stack = [IN_STEP]
        self._raised.clear()

    def _end_step(self, *, failed: bool) -> None:
        failed_in, raised = None, self._raised
        if failed:
            raised.ended_step(self._stack[-1] if raised.slot is None else raised.slot)
            failed_in = self._phase_of(raised.slot if raised.slot is not None else IN_STEP)
        else:
            raised.clear()
        fetches, period = self._fetches.period, self._period
        if self._fetches.end_period():
            period.move(NO_GRAD, EVAL)
        acc = period.acc
        if acc[FETCH] or acc[STARTING] or acc[NO_GRAD]:
            period.move(NO_GRAD, FORWARD)
            period.move(FETCH, IN_STEP)  # a fetch that never closed
            period.move(STARTING, IN_STEP)
        self._step += 1
        serial = self._fetches.serial
        num_fetches = self._fetches.num_fetches(serial)
        start_ns, end_ns = self._start_ns(), self._last_ns
        draft = Draft(self._step, start_ns, end_ns, period, fetches, failed_in, self.position, serial, num_fetches)
        self._held.append(draft)
        if self._timeline.is_on:
            self._timeline.hold(draft, self._held)
        self._period_ns = self._last_ns
        self._stack = [BETWEEN]
        self._period = Period.fresh()

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
            is_step = codes[i] == edges.STEP_NUMBER and codes[at] in _STEP_EDGES
            if is_step or (codes[i] == edges.UPDATED and codes[i - 1] == edges.OPTIMIZER + edges.CLOSE):
                if is_step and self._is_inferring:
                    self._is_inferring, self._num_inferred = False, self._step
                step = self._num_inferred + int(stamps[i]) if is_step else self._skip_to_update(int(stamps[i]))
                num_lost = self.state.num_lost_steps + max(0, step - self._step)
                self.state = replace(self.state, num_lost_steps=num_lost)
                self._last_ns = self._period_ns = int(stamps[at] * 1e9)
                self._step, self._in_gap = step, False
                return i + 1
        return len(codes)

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
