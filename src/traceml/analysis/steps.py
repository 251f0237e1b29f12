"""Builds step records from raw edges: exclusive time by a stack of open phases, so that the parts add up to the period.

Feeding is incremental and restartable: `take` returns what is finished with a cursor, and a builder made from that
cursor goes on exactly there.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace
from typing import Final, Optional

from traceml.analysis.events import StepEvents
from traceml.analysis.fetches import Fetches, PeriodFetches
from traceml.schema import phases
from traceml.schema.records import (
    Event,
    Fault,
    LiveSlot,
    LoaderInfo,
    RankEnd,
    RankIdentity,
    RankState,
    RegionName,
    Segment,
    StepFailure,
    StepRecord,
    Watching,
)
from traceml.wire import edges
from traceml.wire.codec import Body
from traceml.wire.ring import EdgeBatch

# Slots of the accumulators: the phases, the regions, then three whose phase is known only later.
_NUM_PHASES: Final = len(phases.PHASES)
_FIRST_REGION: Final = _NUM_PHASES
_FETCH: Final = _NUM_PHASES + phases.MAX_REGIONS
_STARTING: Final = _FETCH + 1
_NO_GRAD: Final = _FETCH + 2
_NUM_SLOTS: Final = _FETCH + 3
_INPUT: Final = phases.PHASE_INDEX[phases.INPUT]
_FORWARD: Final = phases.PHASE_INDEX[phases.FORWARD]
_BACKWARD: Final = phases.PHASE_INDEX[phases.BACKWARD]
_OPTIMIZER: Final = phases.PHASE_INDEX[phases.OPTIMIZER]
_EVAL: Final = phases.PHASE_INDEX[phases.EVAL]
_IN_STEP: Final = phases.PHASE_INDEX[phases.IN_STEP]
_BETWEEN: Final = phases.PHASE_INDEX[phases.BETWEEN_STEPS]
_SLOT_OF: Final = [0] * edges.CLOSE
for _code, _phase in edges.PHASE_OF.items():
    _SLOT_OF[_code] = phases.PHASE_INDEX[_phase]
for _number in range(phases.MAX_REGIONS):
    _SLOT_OF[edges.FIRST_REGION + _number] = _FIRST_REGION + _number
_SLOT_OF[edges.INPUT], _SLOT_OF[edges.ITERATOR], _SLOT_OF[edges.FORWARD_NO_GRAD] = _FETCH, _STARTING, _NO_GRAD
_LAST_CLOSE: Final = edges.FIRST_REGION + phases.MAX_REGIONS + edges.CLOSE


@dataclass(frozen=True)
class Taken:
    """What was finished since the last take; to be stored together with the cursor, in one transaction."""

    steps: tuple[StepRecord, ...]
    segments: tuple[Segment, ...]
    events: tuple[Event, ...]
    cursor: str


@dataclass
class _Draft:
    """A period whose edges are all known, but perhaps not yet whose its fetches were."""

    step: int
    start_ns: int
    end_ns: int
    acc: list[int]
    seen: list[bool]
    fetches: PeriodFetches
    num_backwards: int
    num_optimizer_steps: int
    counted_samples: Optional[int]
    counted_tokens: Optional[int]
    user_step: Optional[int]
    failed_in: Optional[str]
    position: int  # behind the step's end
    serial: int
    num_fetches: int  # of that iterator, so far


class StepBuilder:
    """Turns one rank's edges into records.

    Args:
        rank: Used until the ring says which rank it is.
        cursor: From an earlier builder's Taken; empty for the ring's start.
    """

    def __init__(self, *, rank: int = 0, cursor: str = "") -> None:
        self.position = 0
        self.state = RankState(RankIdentity(rank, rank, 1, 0, 0))
        self._fetches = Fetches()
        self._events = StepEvents()
        self._step = 0
        self._last_ns = 0  # the newest edge
        self._period_ns: Optional[int] = None  # when the open period began; None: at the process's start
        self._in_gap = False  # edges were lost: wait for the next numbered step end
        self._has_forward = False
        self._run_end_ns: Optional[int] = None
        self._stack = [_BETWEEN]
        self._held: deque[_Draft] = deque()
        self._startup: Optional[tuple[int, list[int], list[bool], PeriodFetches]] = None
        self._segments: list[Segment] = []
        self._cursor = cursor
        self._was_counted = False
        self._begin_period()
        if cursor:
            self._go_on(cursor)

    def _begin_period(self) -> None:
        self._acc = [0] * _NUM_SLOTS
        self._seen = [False] * _NUM_SLOTS
        self._num_backwards = self._num_optimizer_steps = 0
        self._counted_samples: Optional[int] = None
        self._counted_tokens: Optional[int] = None
        self._user_step: Optional[int] = None
        self._raised_in: Optional[int] = None

    def _go_on(self, cursor: str) -> None:
        found = json.loads(cursor)
        self.position, self._step = found["position"], found["step"]
        self._last_ns = self._period_ns = found["end_ns"]
        self._has_forward, self._was_counted = found["has_forward"], found["was_counted"]
        self._fetches.resume(found["serial"], found["num_fetches"], found["training"])

    # -- what is told -------------------------------------------------------------------------------------------------

    def learn(self, body: Body) -> None:
        """Takes a message in: identity, loaders, regions, what is watched, faults, the end."""
        state = self.state
        if isinstance(body, RankIdentity):
            self.state = replace(state, identity=body)
        elif isinstance(body, LoaderInfo):
            self._fetches.loaders[body.number] = body
            self.state = replace(state, loaders=tuple(self._fetches.loaders.values()))
        elif isinstance(body, RegionName):
            self.state = replace(state, regions={**state.regions, body.number: body.name})
        elif isinstance(body, Watching):
            total = body.total_steps if body.total_steps is not None else state.total_steps
            self.state = replace(state, watched=body.phases, unwatched=body.unseen, total_steps=total)
        elif isinstance(body, Fault):
            others = tuple(fault for fault in state.faults if fault.hook != body.hook)
            self.state = replace(state, faults=(*others, body))
        elif isinstance(body, RankEnd):
            self.state = replace(state, end=body)
        elif isinstance(body, StepFailure):
            self._events.exceptions[body.step] = body.exception

    def feed(self, batch: EdgeBatch) -> None:
        """Takes published edges in; they follow the ones before, or say how many were lost between."""
        if batch.num_lost:
            self._lose(batch.num_lost)
        self.position = batch.position
        stamps, codes = _in_order(batch)
        first = self._skip_gap(stamps, codes) if self._in_gap else 0
        slot_of, last, stack, acc, seen = _SLOT_OF, self._last_ns, self._stack, self._acc, self._seen
        for i in range(first, len(codes)):
            code = codes[i]
            if code >= edges.FIRST_VALUE:
                self._value(code, int(stamps[i]))
                continue
            now = int(stamps[i] * 1e9)
            if now > last:
                acc[stack[-1]] += now - last
                last = now
            if code < edges.CLOSE:
                slot = slot_of[code]
                self._last_ns = last
                self._opened(slot)
                acc, seen = self._acc, self._seen  # a cut of the startup replaces them
                stack.append(slot)
                seen[slot] = True
            elif code < _LAST_CLOSE:
                slot = slot_of[code - edges.CLOSE]
                if stack[-1] == slot and len(stack) > 1:
                    stack.pop()
                else:
                    self._close_across(slot)
                if slot >= _FETCH:
                    self._closed(slot)
            else:
                self._last_ns, self.position = last, batch.position + i + 1
                self._control(code)
                stack, acc, seen = self._stack, self._acc, self._seen
        self._last_ns = last
        self.position = batch.end

    # -- what is asked ------------------------------------------------------------------------------------------------

    def take(self) -> Taken:
        """What is finished since the last take."""
        steps, events = [], []
        while self._held and not self._held[0].fetches.undecided:
            draft = self._held.popleft()
            if self._startup is not None:
                self._segments.append(self._segment("startup", *self._startup, end_ns=draft.start_ns))
                self._startup = None
            record = self._record(draft)
            steps.append(record)
            events.extend(self._events.of(record))
            self._cursor = self._cursor_behind(draft)
        segments, self._segments = tuple(self._segments), []
        if steps:
            self._note(steps)
        return Taken(tuple(steps), segments, tuple(events), self._cursor)

    def live(self, tail: EdgeBatch, *, now_ns: int, alive: bool) -> LiveSlot:
        """What the rank does now: its open phase, since when, and the step that is being measured."""
        stack, since = list(self._stack), self._last_ns
        for stamp, code in zip(tail.stamps, tail.codes):
            if code >= edges.FIRST_VALUE:
                continue
            since = max(since, int(stamp * 1e9))
            if code < edges.CLOSE:
                stack.append(_SLOT_OF[code])
            elif code < _LAST_CLOSE and len(stack) > 1:
                stack.pop()
            elif code in (edges.STEP_BEGIN, edges.STEP_END, edges.STEP_FAILED):
                stack = [_IN_STEP if code == edges.STEP_BEGIN else _BETWEEN]
        step = self._step + 1
        return LiveSlot(self.state.identity.rank, step, self._phase_of(stack[-1]), since, now_ns, alive)

    def finish(self, tail: EdgeBatch, *, end_ns: int) -> Taken:
        """The run is over: the unfinished rest becomes the tail, or the startup where no step ever ended."""
        self.feed(tail)
        end_ns = max(self._last_ns, end_ns if self._run_end_ns is None else min(end_ns, self._run_end_ns))
        self._acc[self._stack[-1]] += end_ns - self._last_ns if self._last_ns else 0
        self._fetches.give_up()
        start_ns = self._start_ns()
        rest = (start_ns, self._acc, self._seen, self._fetches.period)
        if self._step:
            self._segments.append(self._segment("tail", *rest, end_ns=end_ns))
        else:
            self._fold_into_startup()
            assert self._startup is not None
            self._segments.append(self._segment("startup", *self._startup, end_ns=end_ns))
            self._startup = None
        self._last_ns = self._period_ns = end_ns
        self._begin_period()
        return self.take()

    # -- edges --------------------------------------------------------------------------------------------------------

    def _opened(self, slot: int) -> None:
        self._raised_in = None
        if slot == _FETCH:
            if self._step == 0 and self._stack == [_BETWEEN] and not self._fetches.feeds_the_same():
                self._fold_into_startup()
            if self._fetches.opening():
                self._no_grad_was_eval()
        elif slot == _FORWARD:
            self._has_forward = True
            self._fetches.forward()
        elif slot == _BACKWARD:
            self._num_backwards += slot not in self._stack
        elif slot == _OPTIMIZER:
            self._num_optimizer_steps += slot not in self._stack
        elif slot == _EVAL:
            self._fetches.evaluated()
        elif slot == _NO_GRAD:
            self._fetches.maybe_evaluated()

    def _closed(self, slot: int) -> None:
        if slot in self._stack:
            return  # a fetch inside a fetch: the outermost one is the wait
        if slot == _FETCH:
            self._fetches.fetched(self._acc[_FETCH])
            self._acc[_FETCH] = 0
        elif slot == _STARTING:
            self._fetches.started(self._acc[_STARTING])
            self._acc[_STARTING] = 0

    def _close_across(self, slot: int) -> None:
        """Closes a phase that is not the innermost: those inside lost their close (an optimizer step that raised)."""
        if slot in self._stack[1:]:
            while self._stack.pop() != slot:
                pass

    def _control(self, code: int) -> None:
        if code == edges.CLOSE_NO_BATCH:
            self._close_across(_FETCH)
            self._acc[self._stack[-1]] += self._acc[_FETCH]
            self._acc[_FETCH] = 0
        elif code == edges.RAISED:
            self._raised_in = self._stack[-1]
        elif code == edges.STEP_BEGIN:
            if not self._has_forward:
                self._fetches.forward()
            if self._step == 0 and not self._fetches.period.training and not self._fetches.period.undecided:
                self._fold_into_startup()
            self._stack = [_IN_STEP]
            self._raised_in = None
        elif code in (edges.STEP_END, edges.STEP_FAILED):
            self._end_step(failed=code == edges.STEP_FAILED)
        elif code == edges.RUN_END:
            self._run_end_ns = self._last_ns

    def _value(self, code: int, value: int) -> None:
        if code == edges.SERIAL:
            self._fetches.serial = value
        elif code == edges.USER_STEP:
            self._user_step = value
        elif code == edges.SAMPLES:
            self._fetches.counted(samples=value)
        elif code == edges.TOKENS:
            self._fetches.counted(tokens=value)
        elif code == edges.COUNTED_SAMPLES:
            self._counted_samples = value + (self._counted_samples or 0)
            self._was_counted = True
        elif code == edges.COUNTED_TOKENS:
            self._counted_tokens = value + (self._counted_tokens or 0)

    def _end_step(self, *, failed: bool) -> None:
        failed_in = None
        if failed:
            open_slot = self._stack[-1] if len(self._stack) > 1 else self._raised_in
            failed_in = self._phase_of(_IN_STEP if open_slot is None else open_slot)
        fetches = self._fetches.period
        for slot in (_FETCH, _STARTING):  # a fetch that never closed
            self._acc[_IN_STEP] += self._acc[slot]
            self._acc[slot] = 0
        if self._fetches.end_period():
            self._no_grad_was_eval()
        self._acc[_FORWARD] += self._acc[_NO_GRAD]
        self._seen[_FORWARD] |= self._seen[_NO_GRAD]
        self._step += 1
        iterator = self._fetches.iterators.get(self._fetches.serial)
        self._held.append(
            _Draft(
                step=self._step,
                start_ns=self._start_ns(),
                end_ns=self._last_ns,
                acc=self._acc,
                seen=self._seen,
                fetches=fetches,
                num_backwards=self._num_backwards,
                num_optimizer_steps=self._num_optimizer_steps,
                counted_samples=self._counted_samples,
                counted_tokens=self._counted_tokens,
                user_step=self._user_step,
                failed_in=failed_in,
                position=self.position,
                serial=self._fetches.serial,
                num_fetches=iterator.num_fetches if iterator else 0,
            )
        )
        self._period_ns = self._last_ns
        self._stack = [_BETWEEN]
        self._begin_period()

    def _no_grad_was_eval(self) -> None:
        if self._acc[_NO_GRAD]:
            self._acc[_EVAL] += self._acc[_NO_GRAD]
            self._seen[_EVAL] = True
        self._acc[_NO_GRAD], self._seen[_NO_GRAD] = 0, False

    # -- startup and gaps ---------------------------------------------------------------------------------------------

    def _start_ns(self) -> int:
        if self._period_ns is not None:
            return self._period_ns
        return self.state.identity.process_start_ns or self._last_ns

    def _fold_into_startup(self) -> None:
        """What came so far belongs to the startup: the next period begins here."""
        if self._startup is None:
            self._startup = (self._start_ns(), [0] * _NUM_SLOTS, [False] * _NUM_SLOTS, PeriodFetches())
        start_ns, acc, seen, fetches = self._startup
        done = self._fetches.restart_period()
        for slot in range(_NUM_SLOTS):
            acc[slot] += self._acc[slot]
            seen[slot] |= self._seen[slot]
        fetches.eval_ns += done.eval_ns
        fetches.had_eval |= done.had_eval
        for serial, waited in done.training.items():
            fetches.training.setdefault(serial, type(waited)()).add(waited)
        user_step = self._user_step
        self._begin_period()
        self._user_step = user_step
        self._period_ns = self._last_ns
        self._startup = (start_ns, acc, seen, fetches)

    def _lose(self, num_lost: int) -> None:
        self._in_gap = True
        self._stack = [_BETWEEN]
        self._begin_period()
        self._fetches.give_up()
        self._fetches.restart_period()
        self.state = replace(self.state, num_lost_edges=self.state.num_lost_edges + num_lost)

    def _skip_gap(self, stamps: list[float], codes: bytes) -> int:
        """The index behind the next numbered step end; the steps up to it are lost and counted."""
        for i in range(1, len(codes)):
            if codes[i] == edges.STEP_NUMBER and codes[i - 1] in (edges.STEP_END, edges.STEP_FAILED):
                step = int(stamps[i])
                num_lost = self.state.num_lost_steps + max(0, step - self._step)
                self.state = replace(self.state, num_lost_steps=num_lost)
                self._last_ns = self._period_ns = int(stamps[i - 1] * 1e9)
                self._step, self._in_gap = step, False
                return i + 1
        return len(codes)

    # -- records ------------------------------------------------------------------------------------------------------

    def _phase_of(self, slot: int) -> str:
        if slot < _NUM_PHASES:
            return phases.PHASES[slot]
        if slot >= _FETCH:
            return phases.FORWARD if slot == _NO_GRAD else phases.INPUT
        return phases.REGION_PREFIX + self.state.regions.get(slot - _FIRST_REGION, str(slot - _FIRST_REGION))

    def _record(self, draft: _Draft) -> StepRecord:
        phase_ns, region_ns, period_ns = _divide(draft.start_ns, draft.acc, draft.seen, draft.fetches, draft.end_ns)
        waits = draft.fetches.training.values()
        num_fetches = max((waited.num_fetches for waited in waits), default=0)
        samples = max((w.num_samples for w in waits if w.num_samples is not None), default=None)
        tokens = max((w.num_tokens for w in waits if w.num_tokens is not None), default=None)
        return StepRecord(
            rank=self.state.identity.rank,
            step=draft.step,
            end_ns=draft.end_ns,
            period_ns=period_ns,
            phase_ns=phase_ns,
            region_ns=region_ns,
            epoch_start_ns=sum(waited.epoch_start_ns for waited in waits),
            num_micro_batches=num_fetches or draft.num_backwards,
            num_optimizer_steps=draft.num_optimizer_steps,
            num_samples=draft.counted_samples if self._was_counted else samples,
            num_tokens=draft.counted_tokens if self._was_counted else tokens,
            user_step=draft.user_step,
            failed_in=draft.failed_in,
        )

    def _segment(
        self, kind: str, start_ns: int, acc: list[int], seen: list[bool], fetches: PeriodFetches, *, end_ns: int
    ) -> Segment:
        acc[_FORWARD] += acc[_NO_GRAD]
        for slot in (_NO_GRAD, _FETCH, _STARTING):
            if slot != _NO_GRAD:
                acc[_BETWEEN] += acc[slot]
            acc[slot] = 0
        phase_ns, region_ns, duration_ns = _divide(start_ns, acc, seen, fetches, end_ns)
        return Segment(self.state.identity.rank, kind, start_ns, duration_ns, phase_ns, region_ns)

    def _cursor_behind(self, draft: _Draft) -> str:
        return json.dumps(
            {
                "position": draft.position,
                "step": draft.step,
                "end_ns": draft.end_ns,
                "has_forward": self._has_forward,
                "was_counted": self._was_counted,
                "serial": draft.serial,
                "num_fetches": draft.num_fetches,
                "training": [s for s, iterator in self._fetches.iterators.items() if iterator.is_training][-64:],
            }
        )

    def _note(self, steps: list[StepRecord]) -> None:
        serial = self._fetches.training_serial
        user_steps = [step.user_step for step in steps if step.user_step is not None]
        self.state = replace(
            self.state,
            first_step=self.state.first_step or steps[0].step,
            last_step=steps[-1].step,
            num_failed=self.state.num_failed + sum(step.failed_in is not None for step in steps),
            training_loader=self.state.training_loader if serial is None else serial >> edges.SERIAL_BITS,
            user_step=user_steps[-1] if user_steps else self.state.user_step,
        )


def _divide(
    start_ns: int, acc: list[int], seen: list[bool], fetches: PeriodFetches, end_ns: int
) -> tuple[tuple[Optional[int], ...], tuple[tuple[int, int], ...], int]:
    """A period's phases, regions and duration; what no edge covers (before the first one) is between the steps."""
    times: list[Optional[int]] = [ns if was_seen else None for ns, was_seen in zip(acc[:_NUM_PHASES], seen)]
    times[_IN_STEP], times[_BETWEEN] = acc[_IN_STEP], acc[_BETWEEN]
    if fetches.training:
        times[_INPUT] = sum(waited.ns for waited in fetches.training.values())
    undecided_ns = sum(waited.ns for waited in fetches.undecided.values())
    if fetches.had_eval or undecided_ns:
        times[_EVAL] = (times[_EVAL] or 0) + fetches.eval_ns + undecided_ns
    regions = tuple(
        (slot - _FIRST_REGION, acc[slot]) for slot in range(_FIRST_REGION, _FIRST_REGION + phases.MAX_REGIONS) if seen[slot]
    )
    period_ns = end_ns - start_ns
    known_ns = sum(ns for ns in times if ns) + sum(ns for _, ns in regions)
    times[_BETWEEN] = (times[_BETWEEN] or 0) + max(0, period_ns - known_ns)
    return tuple(times), regions, max(period_ns, known_ns)


def _in_order(batch: EdgeBatch) -> tuple[list[float], bytes]:
    """The batch with a collection's edges put before the edge they interrupted, whose stamp is younger than theirs."""
    stamps, codes = batch.stamps.tolist(), batch.codes
    at = codes.find(edges.GC)
    if at < 0:
        return stamps, codes
    order = bytearray(codes)
    while at >= 0:
        before = at - 1
        if before >= 0 and order[before] < edges.FIRST_VALUE and stamps[at] < stamps[before]:
            end = at
            while end < len(order) and order[end] < edges.FIRST_VALUE and stamps[end] < stamps[before]:
                end += 1
            stamps[before:end] = [*stamps[at:end], stamps[before]]
            order[before:end] = bytes([*order[at:end], order[before]])
        at = order.find(edges.GC, at + 1)
    return stamps, bytes(order)
