"""Holds the period that is open, and what was cut off it: the steps, the startup, the tail."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Optional

from traceml.analysis.cuts import cut_at
from traceml.analysis.division import (
    BETWEEN,
    FETCH,
    FIRST_REGION,
    IN_STEP,
    NO_GRAD,
    NUM_PHASES,
    STARTING,
    SYNC,
    Draft,
    Period,
    segment_of,
)
from traceml.analysis.fetches import Fetches
from traceml.analysis.live import Opened
from traceml.analysis.raised import Raised
from traceml.analysis.timeline import Timeline
from traceml.analysis.waited import PeriodFetches, Waited
from traceml.schema import phases
from traceml.schema.records import RankIdentity, RankState, Segment
from traceml.wire import edges


class Periods:
    """One rank's time so far. What is cut is exact: every nanosecond lies in one step or segment.

    Args:
        rank: Used until the ring says which rank it is.
    """

    def __init__(self, rank: int) -> None:
        self.position = 0
        self.state = RankState(RankIdentity(rank, rank, 1, 0, 0))
        self._fetches = Fetches()
        self._step = 0
        self._last_ns = 0  # the newest edge
        self._period_ns: Optional[int] = None  # when the open period began; None: when the process did
        self._has_forward = False
        self._is_inferring = False
        self._has_worked = False  # while inferring: forward or backward with gradients since the last update
        self._raised = Raised()
        self._stack = [BETWEEN]
        self._period = Period.fresh()
        self._held: deque[Draft] = deque()
        self._startup: Optional[tuple[int, Period, PeriodFetches]] = None
        self._segments: list[Segment] = []
        self._timeline = Timeline()

    @property
    def raised(self) -> Optional[tuple[int, str]]:
        """The step and the phase that the newest exception left, where training did not go on behind it."""
        slot, has_ended = self._raised.slot, self._raised.has_ended_step
        return None if slot is None else (self._step + self._num_pending + (not has_ended), self._phase_of(slot))

    @property
    def _num_pending(self) -> int:
        """Steps that are over as far as can be seen, and that nothing has ended yet."""
        return 0

    def _stands(self, opened: Opened) -> tuple[int, str]:
        """The step that is being measured and the open phase; of one that an exception has ended, where it left it."""
        end, raised = self.state.end, self.raised
        if raised is not None and end is not None and end.exception:
            return raised
        is_before = (
            opened.slot == IN_STEP and self._is_inferring and not (self._has_worked or self._fetches.is_training)
        )
        return self._step + self._num_pending + 1 + opened.num_ended, self._phase_of(
            BETWEEN if is_before else opened.slot
        )

    def _device_value(self, code: int, value: int, last_ns: int, position: int) -> None:
        if not self._timeline.is_on and code == edges.DEVICE_FROM:  # its message is lost, or comes later
            self._set_clock("device")
        self._timeline.take(code, value, at_ns=last_ns, position=position)

    def _set_clock(self, clock: str) -> None:
        if clock == "device":
            self._timeline.begin(self.position, self._fetches.serial)
        elif self._timeline.is_on:
            self._timeline.settle(self._held, is_over=True)
            self._timeline.is_on = False

    def _tell_events(self) -> None:
        timeline, state = self._timeline, self.state
        if (timeline.num_lost, timeline.num_other) != (state.num_lost_events, state.num_other_events):
            self.state = replace(state, num_lost_events=timeline.num_lost, num_other_events=timeline.num_other)

    def _fresh(self) -> Period:
        """A new period; phases that are open (a region around the loop) reach into it."""
        period = Period.fresh()
        for slot in self._stack[1:]:
            period.seen[slot] = True
        return period

    def _close_across(self, slot: int) -> None:
        """Closes a phase that is not the innermost: those inside lost their close (an optimizer step that raised)."""
        if slot in self._stack[1:]:
            while self._stack.pop() != slot:
                pass

    def _unwind(self) -> None:
        """Closes all phases: a signal handler's exception kept the recorder from closing them, or from opening one."""
        if len(self._stack) > 1:
            self._raised.left(self._stack[-1], len(self._stack))
        del self._stack[1:]
        acc = self._period.acc
        for slot in (FETCH, STARTING):  # no batch came of it
            acc[self._stack[0]] += acc[slot]
            acc[slot] = 0

    def _close_empty_fetch(self) -> None:
        """A fetch delivered no batch: its time goes to what is around it."""
        self._close_across(FETCH)
        self._period.acc[self._stack[-1]] += self._period.acc[FETCH]
        self._period.acc[FETCH] = 0

    def _join(self, period: Period, fetches: PeriodFetches, later: Period, later_fetches: PeriodFetches) -> None:
        later.move(BETWEEN, IN_STEP)
        if later.cut is not None:
            later.cut.put_behind(period.acc, fetches)
        period.merge(later)
        self._fetches.join(fetches, later_fetches)

    def _synced(self) -> None:
        """A wait for other ranks is over."""
        period, fetches = self._period, self._fetches
        acc = period.acc
        period.cut = cut_at(
            self._last_ns,
            acc,
            fetches.period,
            sync_ns=acc[SYNC] - (period.cut.acc[SYNC] if period.cut is not None else 0),
            open_fetch=(fetches.serial, acc[FETCH] + acc[STARTING]),
            last=period.cut,
        )
        period.cut.acc[FETCH] = period.cut.acc[STARTING] = 0

    def _start_ns(self) -> int:
        if self._period_ns is not None:
            return self._period_ns
        return self.state.identity.process_start_ns or self._last_ns

    def _fold_into_startup(self) -> None:
        """What came so far belongs to the startup: the next period begins here."""
        if self._startup is None:
            self._startup = (self._start_ns(), Period.fresh(), PeriodFetches())
        _, startup, fetches = self._startup
        done = self._fetches.restart_period()
        startup.merge(self._period)
        fetches.eval_ns += done.eval_ns
        fetches.had_eval |= done.had_eval
        for serial, waited in done.training.items():
            fetches.training.setdefault(serial, Waited()).add(waited)
        user_step, self._period = self._period.user_step, self._fresh()
        self._period.user_step = user_step
        self._period_ns = self._last_ns

    def _end_startup(self, end_ns: int) -> None:
        assert self._startup is not None
        start_ns, period, fetches = self._startup
        self._add_segment("startup", start_ns, end_ns, period, fetches)
        self._startup = None

    def _add_segment(self, kind: str, start_ns: int, end_ns: int, period: Period, fetches: PeriodFetches) -> None:
        rank = self.state.identity.rank
        self._segments.append(
            segment_of(kind, rank=rank, start_ns=start_ns, end_ns=end_ns, period=period, fetches=fetches)
        )

    def _phase_of(self, slot: int) -> str:
        if slot < NUM_PHASES:
            return phases.PHASES[slot]
        if slot >= FETCH:
            return phases.FORWARD if slot == NO_GRAD else phases.INPUT
        number = slot - FIRST_REGION
        return phases.REGION_PREFIX + self.state.regions.get(number, str(number))
