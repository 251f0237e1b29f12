"""Builds the periods of steps that the script marks by `trace_step`, from one edge after the other."""

from __future__ import annotations

from typing import Final, Optional

from traceml.analysis.division import (
    BACKWARD,
    BETWEEN,
    EVAL,
    FETCH,
    FORWARD,
    IN_STEP,
    NO_GRAD,
    OPTIMIZER,
    STARTING,
    SYNC,
    Draft,
    Period,
)
from traceml.analysis.inference import InferredSteps
from traceml.wire import edges

STEP_EDGES: Final = (edges.STEP_BEGIN, edges.STEP_END, edges.STEP_FAILED)
MOST: Final = float(1 << 53)  # whole numbers up to here stand exactly in a slot
_NOWHERE: Final = -1


class TracedSteps(InferredSteps):
    """The open period, cut where `trace_step` ends."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._was_counted = False  # by hand, with count()
        self._run_end_ns: Optional[int] = None
        self._between_at = _NOWHERE  # behind the newest step's end, where nothing of the next one is taken yet

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
        elif code in STEP_EDGES:
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
        self._between_at = self.position
