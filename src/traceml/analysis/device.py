"""Divides a step on the device's clock: the same stack of open phases, taken at the edges that have events.

Between two events the device spent its time in the phase that was open there. An edge without an event goes with the
nearer of the two around it; a phase without any event stays in the one around it, except in the rests and in input,
where the device works off its queue first and then waits for the host: there the last of the host's time is the
device's.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Optional, Sequence

from traceml.analysis.division import (
    BACKWARD,
    BETWEEN,
    EVAL,
    FETCH,
    FIRST_REGION,
    FORWARD,
    IN_STEP,
    INPUT,
    NO_GRAD,
    NUM_PHASES,
    NUM_SLOTS,
    REGIONS,
    SLOT_OF,
    STARTING,
    DeviceDraft,
    Draft,
)
from traceml.schema import phases
from traceml.schema.records import DeviceTimes, StepRecord
from traceml.wire import edges

_CLOSE: Final = edges.CLOSE
_LAST_CLOSE: Final = edges.FIRST_REGION + phases.MAX_REGIONS + _CLOSE
_GAP_NS: Final = 50_000  # a phase that opens again so soon goes on, where there is no event between
_STEP_EDGES: Final = (edges.STEP_END, edges.STEP_FAILED)

#: Codes that never have an event: what they stand for happens on the host alone, or is told by others.
_HOST_ONLY: Final = frozenset({edges.GC, edges.COMPILE, edges.ITERATOR, edges.SYNC})
#: Where the device has no work of its own to do.
_WAITS: Final = frozenset({BETWEEN, IN_STEP, FETCH})


class Mark(NamedTuple):
    """An edge of a step: its code, the host's stamp, and the device's time where it has an event."""

    code: int
    host_ns: int
    device_ns: Optional[int]
    serial: int = 0  # of the iterator in use


class Span(NamedTuple):
    """A step's edges, between the ends of two steps that are known on both clocks; `stack` is open at its start."""

    start: Mark
    end: Mark
    marks: Sequence[Mark]
    stack: Sequence[int]
    infers: bool


def divided(span: Span) -> Optional[DeviceDraft]:
    """The device's time of a step by slot, adding up exactly; None where the clock ran backwards."""
    start_ns, end_ns = span.start.device_ns, span.end.device_ns
    if start_ns is None or end_ns is None or end_ns < start_ns:
        return None
    walk = _Walk(list(span.stack), span.infers)
    at = span.start
    pending: list[Mark] = []
    for mark, is_kept in zip(span.marks, _in_line(span.marks, start_ns, end_ns)):
        if is_kept:
            walk.over(at, mark, pending)
            walk.apply(mark)
            at, pending = mark, []
        else:
            pending.append(mark)
    walk.over(at, span.end, pending)
    return DeviceDraft(end_ns - start_ns, walk.acc, walk.waits)


def _in_line(marks: Sequence[Mark], start_ns: int, end_ns: int) -> list[bool]:
    """Which events to go by: the most whose times never fall. One of another stream may be far before or behind."""
    tails: list[int] = []  # of the lines of each length, the smallest last time
    lasts: list[int] = []  # and its index
    before: list[int] = [-1] * len(marks)
    for i, mark in enumerate(marks):
        time = mark.device_ns
        if time is None or not start_ns <= time <= end_ns:
            continue
        length = bisect_right(tails, time)
        before[i] = lasts[length - 1] if length else -1
        if length == len(tails):
            tails.append(time)
            lasts.append(i)
        else:
            tails[length], lasts[length] = time, i
    kept, i = [False] * len(marks), lasts[-1] if lasts else -1
    while i >= 0:
        kept[i], i = True, before[i]
    return kept


@dataclass
class _Walk:
    """The stack of open phases, moved along the events."""

    stack: list[int]
    infers: bool
    acc: list[int] = field(default_factory=lambda: [0] * NUM_SLOTS)
    waits: dict[int, int] = field(default_factory=dict)  # by iterator
    has_worked: bool = False
    fetched: Optional[int] = None  # the iterator of the last fetch, while nothing was done with its batch

    def over(self, at: Mark, to: Mark, pending: Sequence[Mark]) -> None:
        """The time from one event to the next, with the edges between them that have none."""
        whole, alone = _sorted_out(pending) if pending else ([], [])
        ahead = [mark for mark in alone if mark.host_ns - at.host_ns <= to.host_ns - mark.host_ns]
        for mark in ahead:
            self.apply(mark)
        assert at.device_ns is not None
        assert to.device_ns is not None
        self._spend(to.device_ns - at.device_ns, whole, to.host_ns)
        for mark in alone[len(ahead) :]:
            self.apply(mark)

    def apply(self, mark: Mark) -> None:
        """What an edge does to the stack."""
        code = mark.code
        if code < _CLOSE:
            self._open(_slot(code, infers=self.infers), mark.serial)
        elif code < _LAST_CLOSE:
            slot = _slot(code - _CLOSE, infers=self.infers)
            self._close(slot)
            if slot == FETCH and FETCH not in self.stack:
                self._wait(mark.serial, self.acc[FETCH])
                self.acc[FETCH] = 0
        elif code == edges.CLOSE_NO_BATCH:
            self._close(FETCH)
            self.acc[self.stack[-1]] += self.acc[FETCH]
            self.acc[FETCH] = 0
        elif code == edges.UNWOUND:
            del self.stack[1:]
            for slot in (FETCH, STARTING):  # no batch came of it
                self.acc[self.stack[0]] += self.acc[slot]
                self.acc[slot] = 0
        elif code == edges.STEP_BEGIN:
            self.stack = [IN_STEP]

    def _open(self, slot: int, serial: int) -> None:
        if self.infers and not self.has_worked:
            if slot in (FORWARD, BACKWARD):
                self.has_worked = True
                self.stack[0] = IN_STEP
            elif slot == FETCH:
                if serial != self.fetched:  # what was fetched before was not for this step
                    self.acc[BETWEEN] += self.acc[IN_STEP]
                    self.acc[IN_STEP] = 0
                self.fetched = serial
                self.stack[0] = IN_STEP
        self.stack.append(slot)

    def _close(self, slot: int) -> None:
        if slot in self.stack[1:]:
            while self.stack.pop() != slot:
                pass

    def _spend(self, device_ns: int, whole: Sequence[tuple[Mark, Mark]], until_ns: int) -> None:
        top, rest_ns = self.stack[-1], device_ns
        if top in _WAITS:
            for opened, closed in whole:
                exposed_ns = max(0, closed.host_ns - max(opened.host_ns, until_ns - device_ns))
                spent_ns = min(exposed_ns, rest_ns)
                slot = _slot(opened.code, infers=self.infers)
                if slot in (FETCH, STARTING):
                    self._wait(opened.serial, spent_ns)
                else:
                    self.acc[slot] += spent_ns
                rest_ns -= spent_ns
        self.acc[top] += rest_ns

    def _wait(self, serial: int, ns: int) -> None:
        self.waits[serial] = self.waits.get(serial, 0) + ns


def _sorted_out(marks: Sequence[Mark]) -> tuple[list[tuple[Mark, Mark]], list[Mark]]:
    """Edges without events: phases that lie wholly among them (the outermost ones), and edges that stand alone."""
    pending: list[Mark] = []
    for mark in marks:
        if pending and _goes_on(pending[-1], mark):
            pending.pop()
        else:
            pending.append(mark)
    whole: list[tuple[int, int]] = []
    opens: list[int] = []
    alone: list[int] = []
    for i, mark in enumerate(pending):
        if mark.code < _CLOSE:
            opens.append(i)
            continue
        code = edges.INPUT if mark.code == edges.CLOSE_NO_BATCH else mark.code - _CLOSE
        found = next((at for at in reversed(opens) if pending[at].code == code), None)
        if found is None:
            alone.append(i)
        else:
            del opens[opens.index(found) :]
            whole = [pair for pair in whole if pair[0] < found]
            whole.append((found, i))
            alone = [at for at in alone if at < found]
    alone = sorted(at for at in (*alone, *opens) if pending[at].code not in _HOST_ONLY_EITHER)
    pairs = [(pending[first], pending[last]) for first, last in whole if pending[last].code != edges.CLOSE_NO_BATCH]
    return pairs, [pending[at] for at in alone]


_HOST_ONLY_EITHER: Final = _HOST_ONLY | frozenset(code + _CLOSE for code in _HOST_ONLY)


def _goes_on(closed: Mark, opened: Mark) -> bool:
    """Several copies in a row, say: a phase that closes and opens again at once, with one event around them all."""
    return opened.code < _CLOSE and closed.code == opened.code + _CLOSE and opened.host_ns - closed.host_ns <= _GAP_NS


def _slot(code: int, *, infers: bool) -> int:
    return NO_GRAD if infers and code == edges.EVAL else SLOT_OF[code]


def may_have_event(code: int) -> bool:
    """Whether an event may stand beside an edge of this code."""
    if code >= edges.FIRST_VALUE or code in (edges.NEVER, edges.RAISED, edges.UNWOUND, edges.RUN_END):
        return False
    return code not in _HOST_ONLY_EITHER


def is_phase(code: int) -> bool:
    """Whether a code opens or closes a phase, or a step."""
    return edges.NEVER < code < edges.FIRST_VALUE and code not in (edges.RAISED, edges.RUN_END, *_STEP_EDGES)


def device_times(draft: Draft, record: StepRecord) -> Optional[DeviceTimes]:
    """The device's times of a draft whose fetches are decided: whose the waits were is what the host's clock says.

    Args:
        draft: Settled; None where the device's data are not there.
        record: Of the host's clock: a phase that has no edge in it is None on both clocks.
    """
    found = draft.device
    if found is None:
        return None
    acc = list(found.acc)
    acc[FORWARD if draft.period.no_grad_to is None else draft.period.no_grad_to] += acc[NO_GRAD]
    acc[IN_STEP] += acc[FETCH] + acc[STARTING]  # a fetch that never ended
    for serial, ns in found.waits.items():
        acc[INPUT if serial in draft.fetches.training else EVAL] += ns
    times = tuple(ns if ns or known is not None else None for ns, known in zip(acc[:NUM_PHASES], record.phase_ns))
    regions = tuple((slot - FIRST_REGION, acc[slot]) for slot in REGIONS if acc[slot] or draft.period.seen[slot])
    start_ns = min(record.epoch_start_ns, acc[INPUT])
    return DeviceTimes(found.period_ns, times, regions, start_ns, found.run_ahead_ns)
