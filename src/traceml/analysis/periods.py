"""Holds the period that is open, and what was cut off it: the steps, the startup, the tail."""

from __future__ import annotations

from collections import deque
from typing import Optional

from traceml.analysis.division import (
    BETWEEN,
    FETCH,
    FIRST_REGION,
    NO_GRAD,
    NUM_PHASES,
    STARTING,
    Draft,
    Period,
    segment_of,
)
from traceml.analysis.fetches import Fetches, PeriodFetches, Waited
from traceml.schema import phases
from traceml.schema.records import RankIdentity, RankState, Segment


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
        self._raised_in: Optional[int] = None
        self._stack = [BETWEEN]
        self._period = Period.fresh()
        self._held: deque[Draft] = deque()
        self._startup: Optional[tuple[int, Period, PeriodFetches]] = None
        self._segments: list[Segment] = []

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
            self._raised_in = self._stack[-1]
        del self._stack[1:]
        acc = self._period.acc
        for slot in (FETCH, STARTING):  # no batch came of it
            acc[self._stack[0]] += acc[slot]
            acc[slot] = 0

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
