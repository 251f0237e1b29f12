"""Puts an event beside an edge's stamp on the device's own queue, and tells the device's times when they are known.

A step's events are asked, never waited for, at the ends of later steps; their times go into the ring as value entries
(docs/decisions/0005). One failure of the device ends this for the session, and nothing of it reaches the training.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, Callable, Final, Optional

from traceml.recorder.accelerator import Accelerator
from traceml.recorder.hooks.captures import Captures
from traceml.recorder.interrupts import let_pass
from traceml.recorder.pen import Pen
from traceml.wire import edges

HOOK: Final = "device clock"
_MAX_AGE: Final = 64  # steps; what is not done then is dropped
_NUM_READY: Final = 64  # events that wait in the pool of a device
_NUM_FILLED: Final = 16  # of them made in each of the first steps: the first record of an event is slow
_MAX_EVENTS: Final = 8192  # in all
_MAX_TAKEN: Final = 512  # of one step; a long evaluation between two steps is told piece by piece
_MIN_TOLD: Final = 32  # events that may be told at a step's end; above, twice as many as the step had
_MAX_GAP_S: Final = 8e-6  # between two copies: too short to put work of another kind between them
_INDEX: Final = (1 << edges.DEVICE_BITS) - 1
_SAY_AGAIN: Final = 1 << 13  # entries; whoever lost the chain finds it again there
_MAX_DELTA: Final = 1 << (53 - edges.TIME_BITS)  # of indices: 20 bits of a whole double
_UNITS_PER_MS: Final = 1_000_000 / edges.TIME_UNIT_NS

_PHASES: Final = (
    *(
        edges.INPUT,
        edges.H2D,
        edges.FORWARD,
        edges.FORWARD_NO_GRAD,
        edges.EVAL,
        edges.BACKWARD,
        edges.SYNC,
        edges.OPTIMIZER,
    ),
    *(edges.CHECKPOINT, *range(edges.FIRST_REGION, edges.CLOSE)),
)
#: Whether an edge has an event, by its code.
HAS_EVENT: Final = bytes(
    code in (edges.STEP_BEGIN, edges.STEP_END, edges.STEP_FAILED, edges.CLOSE_NO_BATCH)
    or code in _PHASES
    or code - edges.CLOSE in _PHASES
    for code in range(256)
)
#: What else an edge does, by its code. The event before is polled at the edges between which the host works: at ends
#: of steps alone, an idle device would be seen a step too late.
_EVENT, _POLL, _SAY, _COPY = 1, 2, 4, 8


def _does(code: int) -> int:
    if not HAS_EVENT[code]:
        return 0
    polls = code in (edges.FORWARD, edges.BACKWARD, edges.OPTIMIZER, edges.STEP_END, edges.STEP_FAILED)
    says = code in (edges.INPUT, edges.STEP_BEGIN, edges.FORWARD, edges.EVAL)
    return _EVENT + _POLL * polls + _SAY * says + _COPY * (code == edges.H2D)


_DOES: Final = bytes(_does(code) for code in range(256))


class _Step:
    """The events of one step that is over: index of the edge, device, event."""

    __slots__ = ("events", "num_missed", "num_streams", "number")

    def __init__(self, number: int, events: list[tuple[int, int, Any]], num_streams: int, num_missed: int) -> None:
        self.number, self.events, self.num_streams, self.num_missed = number, events, num_streams, num_missed

    def is_done(self) -> bool:
        """Asks the last event; those of several streams end in any order, so then each."""
        if not self.events[-1][2].query():
            return False
        return self.num_streams == 1 or all(event.query() for _, _, event in self.events)


class DeviceClock:
    """Records events with the edges of one session, and tells their times.

    Between a step and the telling of its times lie as many steps as the host runs ahead; 64 at most.
    """

    def __init__(self, pen: Pen, accelerator: Accelerator, captures: Captures) -> None:
        self._pen, self._accelerator, self._captures = pen, accelerator, captures
        self.home: Optional[int] = None  # the device that is meant, where it is not the current one
        self.latest: Callable[[], int] = _unknown  # the index of the newest edge
        self._before = (pen.nxt, pen.clock)
        self._ready: defaultdict[int, list[Any]] = defaultdict(list)
        self._num_events = 0
        self._taken: list[tuple[int, int, Any]] = []
        self._streams: set[object] = set()
        self._num_missed = 0
        self._number = 0
        self._found_done = -1
        self._steps: deque[_Step] = deque()
        self._chains: dict[int, tuple[Any, int, float]] = {}  # by device: its newest told event, index, rounding
        self._told: Optional[int] = None  # the device whose chain is the newest in the ring
        self._told_at = 0  # the edge from which that was said
        self._is_on = False

    def start(self) -> None:
        """Every edge from now on has its event."""
        self._is_on = True
        self._pen.guard.register(HOOK, self.stop)
        self._pen.swap(*self._make_writer())
        self._pen.clock_used, self._pen.clock_note = "device", ""

    def stop(self) -> None:
        """Edges have stamps only, as before; what is done is told, the rest is counted. A second call does nothing."""
        if not self._is_on:
            return
        self._is_on, self.latest = False, _unknown
        self._pen.swap(*self._before)
        if self._pen.owner is None:
            return  # a forked child: the events are its parent's, and their end would reach for the device
        try:
            self._close_step()
            if not self._captures.is_open():
                self._tell_done(_MAX_EVENTS)
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(HOOK, error)
        self._drop_all()

    def step_ended(self) -> None:
        """Right behind a step's end, or an update: polls, tells what is done by now, drops what is too old."""
        if not self._is_on:
            return
        try:
            if self._captures.is_open():
                self._close_step()
                return
            num_taken = self._close_step()
            self._tell_done(max(_MIN_TOLD, 2 * num_taken))
            self._fill()
        except BaseException as error:  # noqa: BLE001  # guard
            self._fail(error)

    # -- recording -----------------------------------------------------------------------------------------------------

    def _make_writer(self) -> tuple[Callable[[], int], Callable[[], float]]:  # noqa: C901  # one hot path
        """What hooks number and time their edges with: `nxt` remembers the index, `clock` records the event to it.

        A collection's edges are not numbered here, so one that starts anywhere in between harms nothing.
        """
        pen, accelerator = self._pen, self._accelerator
        count, host = self._before
        codes, stamps, mask = pen.codes, pen.stamps, pen.mask
        current, record, is_capturing = accelerator.current, accelerator.record, accelerator.is_capturing
        taken, ready, streams, open_captures = self._taken, self._ready, self._streams, self._captures.open
        newest = latest = -1

        def nxt() -> int:
            nonlocal newest, latest
            newest = latest = j = count()
            return j

        def clock() -> float:
            nonlocal newest
            j, newest = newest, -1
            does = _DOES[codes[j & mask]] if j >= 0 else 0
            if not does:
                return host()
            now = 0.0
            try:
                if open_captures or is_capturing():
                    self._num_missed += 1
                    return host()
                # Polls come before the stamp, and the event behind it: what is done was done by then, and no event is
                # done before it is recorded.
                if does & _POLL and taken:
                    before = taken[-1]
                    k = count() & mask
                    codes[k] = edges.DEVICE_READY if before[2].query() else edges.DEVICE_PENDING
                    stamps[k] = before[0] & _INDEX
                if does & _SAY and self._found_done >= 0:
                    self._say_done()
                now = host()
                if does & _COPY and taken and taken[-1][0] == j - 1 and self._is_merged(j, now):
                    return now
                device = self.home
                if device is None:
                    device = current()
                events = ready.get(device)
                event = events.pop() if events else self._make_event()
                if event is None:
                    self._num_missed += 1
                    return now
                streams.add(record(event, device))
                taken.append((j, device, event))
                if len(taken) >= _MAX_TAKEN:
                    self._tell_done(max(_MIN_TOLD, 2 * self._close_step()))
            except BaseException as error:  # noqa: BLE001  # guard
                self._fail(error)
            return now or host()

        for ours in (nxt, clock):
            pen.skip(ours, whole=True, awaits=False)
        self.latest = lambda: latest
        return nxt, clock

    def _is_merged(self, j: int, now: float) -> bool:
        """Two copies in a row are one on the device's clock: the first's close and the next's open do not count."""
        pen, before = self._pen, (j - 1) & self._pen.mask
        if pen.codes[before] != edges.H2D + edges.CLOSE or now - pen.stamps[before] > _MAX_GAP_S:
            return False
        _, device, event = self._taken.pop()
        self._ready[device].append(event)
        return True

    def _make_event(self) -> Any:
        if self._num_events >= _MAX_EVENTS:
            return None
        self._num_events += 1
        return self._accelerator.event()

    def _fill(self) -> None:
        """Makes some events in each of the first steps, and records them once: then they are quick."""
        device = self._accelerator.current() if self.home is None else self.home
        events = self._ready[device]
        for _ in range(min(_NUM_FILLED, _NUM_READY - len(events)) if self._number <= _NUM_READY // _NUM_FILLED else 0):
            event = self._make_event()
            if event is not None:
                self._accelerator.record(event, device)
                events.append(event)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _say_done(self) -> None:
        """What the last step's end found done, behind the first stamp since then: of that one it is true."""
        self._pen.value(edges.DEVICE_READY, self._found_done & _INDEX)
        self._found_done = -1

    def _close_step(self) -> int:
        """The step that is over waits for its events; how many it had."""
        self._number += 1
        num_taken = len(self._taken)
        if num_taken or self._num_missed:
            self._steps.append(_Step(self._number, self._taken[:], len(self._streams), self._num_missed))
        self._taken.clear()
        self._streams.clear()
        self._num_missed = 0
        return num_taken

    def _tell_done(self, num_events: int) -> None:
        while self._steps and num_events > 0:
            step = self._steps[0]
            if step.num_missed:
                self._drop(self._steps.popleft())
            elif step.is_done():
                self._found_done = step.events[-1][0]  # said behind the next stamp, so that it is true of that
                num_events -= len(step.events)
                self._tell(self._steps.popleft())
            elif self._number - step.number >= _MAX_AGE:
                self._drop(self._steps.popleft())
            else:
                self._pen.value(edges.DEVICE_PENDING, step.events[-1][0] & _INDEX)
                break

    def _tell(self, step: _Step) -> None:
        count, codes, stamps, mask = self._before[0], self._pen.codes, self._pen.stamps, self._pen.mask
        chains, ready = self._chains, self._ready
        for j, device, event in step.events:
            chain = chains.get(device)
            if chain is None:
                self._begin_chain(device, j, event)
                continue
            before, i, rest = chain
            exact = before.elapsed_time(event) * _UNITS_PER_MS + rest
            units = round(exact)
            ready[device].append(before)
            if j - i >= _MAX_DELTA or abs(units) >= edges.TIME_BIAS:
                self._begin_chain(device, j, event)
                continue
            if device != self._told or j - self._told_at >= _SAY_AGAIN:
                self._begin_chain(device, i, before)  # goes on from the event that was told last
            k = count() & mask
            codes[k] = edges.DEVICE_AT
            stamps[k] = (j - i) << edges.TIME_BITS | (units + edges.TIME_BIAS)
            chains[device] = (event, j, exact - units)

    def _begin_chain(self, device: int, j: int, event: Any) -> None:
        self._pen.value(edges.DEVICE_FROM, device << edges.DEVICE_BITS | j & _INDEX)
        self._chains[device] = (event, j, 0.0)
        self._told, self._told_at = device, j

    def _drop(self, step: _Step) -> None:
        self._pen.value(edges.DEVICE_LOST, len(step.events) + step.num_missed)
        for _, device, event in step.events:
            self._ready[device].append(event)
        for device, chain in self._chains.items():
            self._ready[device].append(chain[0])
        self._chains.clear()
        self._told = None

    def _drop_all(self) -> None:
        """At the end, or after a failure: whatever is not told is counted, and the events go."""
        num_lost = len(self._taken) + self._num_missed
        num_lost += sum(len(step.events) + step.num_missed for step in self._steps)
        if num_lost:
            self._pen.value(edges.DEVICE_LOST, num_lost)
        self._taken.clear()
        self._steps.clear()
        self._chains.clear()
        self._ready.clear()
        self._num_missed, self._told = 0, None

    def _fail(self, error: BaseException) -> None:
        """The device, or what we asked of it, failed: the host's clock is what is left.

        Raises:
            BaseException: The error itself, where a signal handler of the user's raised it.
        """
        let_pass(error)
        pen = self._pen
        if not self._is_on:
            return
        self._is_on, self.latest = False, _unknown
        pen.guard.fault(HOOK, error)
        pen.guard.remove(HOOK)
        pen.swap(*self._before)
        self._drop_all()
        pen.clock_used, pen.clock_note = "host", f"events failed: {type(error).__name__}: {error}"[:200]
        pen.tell()


def _unknown() -> int:
    return -1
