"""Draws the panel when the launcher asks, at a bounded cost: figures are renewed only when their own cost is small."""

from __future__ import annotations

import math
import sys
import time
import traceback
from typing import TYPE_CHECKING, Callable, Final, Generic, Optional, TypeVar

from traceml.errors import TraceMLError
from traceml.report.live import refreshed
from traceml.views.terminal.pace import Pace
from traceml.views.terminal.panel import metrics_of, panel
from traceml.views.terminal.state import is_judged

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.report.series import Series
    from traceml.schema.current import Current
    from traceml.schema.panel import PanelRequest

T = TypeVar("T")
NUM_STEPS: Final = 300  # of the curves
_TIMES: Final = 600.0  # its own CPU time must have passed until figures are made again: a sixth of a percent each
_RENEWED_S: Final = 10.0  # the verdict's intervals, at most so often
_AWAITED_S: Final = 1.0  # before the first verdict
_MAX_LOGGED: Final = 8
_CURVES_S: Final = 3.0

#: The series of some metrics, of a rank (None: of all) and over a window of steps.
ReadSeries = Callable[[tuple[str, ...], Optional[int], tuple[int, int]], dict[str, "Series"]]


class _Kept(Generic[T]):
    """A value that is made anew when `_TIMES` its own cost has passed."""

    def __init__(self) -> None:
        self.value: Optional[T] = None
        self._cost_s = 0.0
        self._made_s = -math.inf

    def renewed(self, make: Callable[[], T], *, now_s: float, least_s: float, cpu: Callable[[], float]) -> Optional[T]:
        if now_s >= self._made_s + max(least_s, _TIMES * self._cost_s):
            before = cpu()
            try:
                self.value = make()
            finally:  # what fails is not tried again at once, either
                self._cost_s, self._made_s = cpu() - before, now_s
        return self.value


class Drawing:
    """The panel of one run.

    Args:
        report: Builds the whole report, as of a running run.
        series: Reads curves.
        current: How the run stands now; cheap.
        clock: The records' clock, ns.
        cpu: CPU time of this thread, s.
    """

    def __init__(
        self,
        report: Callable[[], Report],
        series: ReadSeries,
        current: Callable[[], Current],
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._build, self._read, self._current = report, series, current
        self._clock, self._cpu = clock, cpu
        self._report: _Kept[Report] = _Kept()
        self._series: _Kept[dict[str, Series]] = _Kept()
        self._pace = Pace()
        self._logged: set[str] = set()

    def rows(self, request: PanelRequest) -> Optional[list[str]]:
        """The panel's rows, brought to this moment; None where nothing can be said (yet), and the last rows stand."""
        try:
            return self._rows(request)
        except TraceMLError as error:  # the store's: it has just moved, or its disk is full
            self._log(f"no panel: {error}\n")
        except Exception:  # noqa: BLE001  # a fault in a drawing must not end the recording; it stands in the log
            self._log(traceback.format_exc())
        return None

    def _log(self, text: str) -> None:
        """Once: it may come twice a second, for days."""
        if text not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(text)
            sys.stderr.write(text)

    def _rows(self, request: PanelRequest) -> Optional[list[str]]:
        now_ns, current = self._clock(), self._current()
        now_s = now_ns / 1e9
        last = max((state.last_step for state in current.states if state.last_step is not None), default=None)
        moment = self._pace.feed(now_s, last, is_halted=any(slot.halted for slot in current.slots if slot.alive))
        report = self._figures(now_s, last)
        if report is None:
            return None
        series = self._curves(report, now_s, last) if last else {}
        report = refreshed(report, current, now_wall=time.time(), now_ns=now_ns)
        return panel(request, report, series, moment)

    def _figures(self, now_s: float, last: Optional[int]) -> Optional[Report]:
        known = self._report.value
        is_first = known is not None and not known.run.steps and last is not None
        is_early = known is None or not is_judged(known)
        least_s = 0.0 if is_first else _AWAITED_S if is_early else _RENEWED_S
        return self._report.renewed(self._build, now_s=now_s, least_s=least_s, cpu=self._cpu)

    def _curves(self, report: Report, now_s: float, last: int) -> dict[str, Series]:
        def read() -> dict[str, Series]:
            rank = report.step_time.ranks.median
            return self._read(metrics_of(report), rank, (max(1, last - NUM_STEPS + 1), last))

        return self._series.renewed(read, now_s=now_s, least_s=_CURVES_S, cpu=self._cpu) or {}
