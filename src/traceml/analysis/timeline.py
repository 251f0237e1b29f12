"""Follows the device's clock through the ring: chains of event times, polls, and the edges they belong to.

Device times come behind later steps' edges. A step is settled at the first end of a step behind its own times, so that
what is known of it depends on the ring alone, and not on how often it is read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Iterable, Iterator, NamedTuple, Optional

from traceml.analysis.device import Mark, Span, divided, is_phase, may_have_event
from traceml.analysis.division import BETWEEN, Draft
from traceml.analysis.offset import Offset
from traceml.wire import edges
from traceml.wire.ring import EdgeBatch

MAX_HELD: Final = 64  # later steps, before a step goes on without the device's clock
_MAX_EDGES: Final = 1 << 18  # kept for steps that wait
_NEAR_EDGES: Final = 32  # looked at for the event at a step's end
_NEAR_NS: Final = 100_000  # an edge so close to a step's end may lend it its event
_INDEX_MASK: Final = (1 << edges.DEVICE_BITS) - 1
_TIME_MASK: Final = (1 << edges.TIME_BITS) - 1


class Moment(NamedTuple):
    """When the event of an edge was done: ns on the clock of a chain, whose origin is 0."""

    chain: int
    device_ns: int


@dataclass
class _Chain:
    """A device's newest chain: how far it is told, and how far its clock is from the host's."""

    number: int
    index: int
    device_ns: int
    offset: Offset


class _Point(NamedTuple):
    """The end of a step, on both clocks."""

    moment: Moment
    mark: Mark


class Snapshot(NamedTuple):
    """What the device's clock needs behind a step's end, without the edges."""

    floor: int
    device: Optional[int]
    chains: tuple[tuple[int, int, int, int, Offset], ...]
    moments: dict[int, Moment]
    polls: dict[int, tuple[Optional[int], Optional[int]]]
    counts: tuple[int, int, int, int]


class _Kept(NamedTuple):
    position: int
    stamps: Any  # seconds, or values
    codes: bytes

    @property
    def end(self) -> int:
        return self.position + len(self.codes)


class Timeline:
    """One rank's device clock. Keeps the edges of steps that wait for their times: at most 64, and 262,144 edges."""

    def __init__(self) -> None:
        self.is_on = False
        self.num_lost = 0  # events
        self.num_other = 0  # events on another device than the one that a step ended on
        self._kept: deque[_Kept] = deque()
        self._chains: dict[int, _Chain] = {}  # by device
        self._device: Optional[int] = None  # whose chain is being told
        self._num_chains = 0
        self._moments: dict[int, Moment] = {}  # by edge
        self._polls: dict[int, tuple[Optional[int], Optional[int]]] = {}  # by edge: pending at, ready at
        self._told_until = -1  # the furthest edge that a chain came to
        self._starts: deque[int] = deque()  # where the steps that wait begin, and the open one
        self._floor = 0  # where the step before the oldest of them began: older edges are not looked at
        self._serial = 0  # of the iterator in use where the oldest of them begins
        self._stack = [BETWEEN]  # the phases that are open there

    # -- edges and entries --------------------------------------------------------------------------------------------

    def keep(self, batch: EdgeBatch) -> None:
        """Edges follow; their times come later."""
        self._kept.append(_Kept(batch.position, batch.stamps, batch.codes))
        while batch.end - self._kept[0].position > _MAX_EDGES and len(self._kept) > 1:
            self._kept.popleft()  # steps of so many edges go on without the device's clock

    def begin(self, position: int, serial: int) -> None:
        """The first step to wait for begins here."""
        self.is_on = True
        if not self._starts:
            self._starts.append(position)
            self._floor, self._serial = position, serial

    def take(self, code: int, value: int, *, at_ns: int, position: int) -> None:
        """Takes an entry in.

        Args:
            code: One of the DEVICE codes; others are passed over.
            value: What it holds.
            at_ns: The stamp before it.
            position: Where it stands: an edge behind it cannot be spoken of.
        """
        if code == edges.DEVICE_AT:
            self._go_on(value, position)
        elif code == edges.DEVICE_FROM:
            self._start_chain(value >> edges.DEVICE_BITS, value & _INDEX_MASK, position)
        elif code == edges.DEVICE_READY:
            self._poll(value & _INDEX_MASK, ready_ns=at_ns)
        elif code == edges.DEVICE_PENDING:
            self._poll(value & _INDEX_MASK, pending_ns=at_ns)
        elif code == edges.DEVICE_LOST:
            self.num_lost += value
            self._device = None

    def lose(self, position: int) -> None:
        """Edges were lost: what was being told cannot be followed, until a chain begins anew."""
        self._device = None
        self._kept.clear()
        self._moments.clear()
        self._polls.clear()
        self._floor = position
        for _ in range(len(self._starts)):  # the steps that wait have nothing to wait for
            self._starts.popleft()
        self._starts.append(position)

    def _start_chain(self, device: int, index: int, position: int) -> None:
        if index >= position:
            self._device = None
            return
        self._device, chain = device, self._chains.get(device)
        known = self._moments.get(index)
        if chain is not None and known is not None and known.chain == chain.number:
            chain.index, chain.device_ns = index, known.device_ns  # the same chain goes on, behind another device's
        elif chain is None or chain.index != index:
            self._num_chains += 1
            self._chains[device] = chain = _Chain(self._num_chains, index, 0, Offset())
            self._told(chain)

    def _go_on(self, value: int, position: int) -> None:
        chain = None if self._device is None else self._chains[self._device]
        if chain is None:
            return
        index = chain.index + (value >> edges.TIME_BITS)
        if not chain.index < index < position:
            self._device = None  # damaged: nothing behind it can be placed
            return
        chain.index = index
        chain.device_ns += ((value & _TIME_MASK) - edges.TIME_BIAS) * edges.TIME_UNIT_NS
        self._told(chain)

    def _told(self, chain: _Chain) -> None:
        index, device_ns = chain.index, chain.device_ns
        self._moments[index] = Moment(chain.number, device_ns)
        self._told_until = max(self._told_until, index)
        host_ns = self._host_ns(index)
        if host_ns is not None:  # an event is never done before it was recorded
            chain.offset = chain.offset.least(host_ns - device_ns, device_ns)
        pending_ns, ready_ns = self._polls.pop(index, (None, None))
        self._bound(chain, device_ns, pending_ns=pending_ns, ready_ns=ready_ns)

    def _poll(self, index: int, *, pending_ns: Optional[int] = None, ready_ns: Optional[int] = None) -> None:
        known = self._moments.get(index)
        if known is not None:
            for chain in self._chains.values():
                if chain.number == known.chain:
                    self._bound(chain, known.device_ns, pending_ns=pending_ns, ready_ns=ready_ns)
            return
        pending, ready = self._polls.get(index, (None, None))
        if pending_ns is not None:
            pending = pending_ns if pending is None else max(pending, pending_ns)
        if ready_ns is not None:
            ready = ready_ns if ready is None else min(ready, ready_ns)
        self._polls[index] = (pending, ready)

    @staticmethod
    def _bound(chain: _Chain, device_ns: int, *, pending_ns: Optional[int], ready_ns: Optional[int]) -> None:
        if pending_ns is not None:
            chain.offset = chain.offset.least(pending_ns - device_ns, device_ns)
        if ready_ns is not None:
            chain.offset = chain.offset.most(ready_ns - device_ns, device_ns)

    # -- steps --------------------------------------------------------------------------------------------------------

    def hold(self, draft: Draft, held: deque[Draft]) -> None:
        """A step ended: it waits, and those before it that have their times are settled."""
        draft.is_settled = False
        if draft.timeline is None:  # an inferred one's end lies behind already
            draft.timeline = self.snapshot()
        self._starts.append(draft.position)
        self.settle(held)

    def settle(self, held: Iterable[Draft], *, is_over: bool = False) -> None:
        """Settles the steps whose times are told, were lost, or do not come any more.

        Args:
            held: The steps that are not taken yet, the newest of which is last.
            is_over: Nothing more comes.
        """
        waiting = [draft for draft in held if not draft.is_settled]
        for number, draft in enumerate(waiting):
            is_late = len(waiting) - number > MAX_HELD
            behind = waiting[number + 1].position if number + 1 < len(waiting) else None
            is_passed = behind is not None and self._told_until >= behind - 1
            is_told = self._at_end(draft.position) is not None
            if not (is_told or is_passed or is_late or is_over):
                break
            self._settle(draft)

    def _settle(self, draft: Draft) -> None:
        draft.is_settled = True
        first = self._starts.popleft()
        start, end = self._at_end(first), self._at_end(draft.position)
        if start is not None and end is not None:
            self._divide(draft, first=first, start=start, end=end)
        inference = draft.inference
        self._stack = [BETWEEN] if inference is None else inference["stack"]
        self._serial, self._floor = draft.serial, first
        for known in (self._moments, self._polls):
            for index in [index for index in known if index < first]:
                del known[index]

    def _divide(self, draft: Draft, *, first: int, start: _Point, end: _Point) -> None:
        if start.moment.chain != end.moment.chain:
            return  # another device, or another chain: nobody knows what lies between
        marks = list(self._marks(first, draft.position, end.moment.chain))
        span = Span(start.mark, end.mark, marks, self._stack, draft.inference is not None)
        draft.device = divided(span)
        if draft.device is None:
            return
        for chain in self._chains.values():
            if chain.number == end.moment.chain:
                draft.device.run_ahead_ns = chain.offset.behind_ns(end.moment.device_ns, end.mark.host_ns)

    def _marks(self, first: int, last: int, chain: int) -> Iterator[Mark]:
        """The edges of a step that open or close something, with the times of a chain."""
        serial = self._serial
        for index, stamp, code in self._edges(first, last):
            if code == edges.SERIAL:
                serial = int(stamp)
            elif is_phase(code):
                moment = self._moments.get(index)
                is_ours = moment is not None and moment.chain == chain
                self.num_other += moment is not None and not is_ours
                yield Mark(code, int(stamp * 1e9), moment.device_ns if moment and is_ours else None, serial)

    def _at_end(self, position: int) -> Optional[_Point]:
        """The event at the end of the step before `position`: its last edge's, or that of one just before."""
        end_ns: Optional[int] = None
        for index in range(position - 1, max(self._floor, position - _NEAR_EDGES) - 1, -1):
            edge = self._edge(index)
            if edge is None:
                return None
            stamp, code = edge
            if not may_have_event(code):
                continue
            host_ns = int(stamp * 1e9)
            end_ns = host_ns if end_ns is None else end_ns
            if end_ns - host_ns > _NEAR_NS:
                return None
            moment = self._moments.get(index)
            if moment is not None:
                return _Point(moment, Mark(code, host_ns, moment.device_ns))
        return None

    def _edge(self, index: int) -> Optional[tuple[float, int]]:
        for kept in reversed(self._kept):
            if kept.position <= index:
                at = index - kept.position
                return (kept.stamps[at], kept.codes[at]) if at < len(kept.codes) else None
        return None

    def _host_ns(self, index: int) -> Optional[int]:
        edge = self._edge(index)
        return int(edge[0] * 1e9) if edge is not None and may_have_event(edge[1]) else None

    def _edges(self, first: int, last: int) -> Iterator[tuple[int, float, int]]:
        for kept in self._kept:
            if kept.end > first and kept.position < last:
                low, high = max(0, first - kept.position), min(len(kept.codes), last - kept.position)
                position = kept.position + low
                yield from zip(range(position, position + high - low), kept.stamps[low:high], kept.codes[low:high])

    # -- restarts -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """How to go on from here, once the steps before are stored."""
        chains = tuple((d, c.number, c.index, c.device_ns, c.offset) for d, c in self._chains.items())
        counts = (self._num_chains, self._told_until, self.num_lost, self.num_other)
        return Snapshot(self._floor, self._device, chains, dict(self._moments), dict(self._polls), counts)

    def taken(self, draft: Draft) -> dict[str, Any]:
        """A step was taken: what a cursor behind it must hold. Edges that only earlier ones needed are let go."""
        found: Snapshot = draft.timeline
        kept = list(self._edges(found.floor, draft.position))
        while self._kept and self._kept[0].end <= found.floor:
            self._kept.popleft()
        return {
            "floor": kept[0][0] if kept else draft.position,
            "stamps": [stamp for _, stamp, _ in kept],
            "codes": [code for _, _, code in kept],
            "device": found.device,
            "chains": found.chains,
            "moments": list(found.moments.items()),
            "polls": list(found.polls.items()),
            "counts": found.counts,
        }

    def resume(self, found: dict[str, Any], position: int, *, serial: int, inference: Optional[dict[str, Any]]) -> None:
        """Goes on behind a stored step."""
        self.is_on = True
        self._floor, self._starts, self._serial = found["floor"], deque([position]), serial
        self._stack = [BETWEEN] if inference is None else inference["stack"]
        self._kept.append(_Kept(found["floor"], found["stamps"], bytes(found["codes"])))
        self._device = found["device"]
        for device, number, index, device_ns, offset in found["chains"]:
            self._chains[device] = _Chain(number, index, device_ns, Offset(*offset))
        self._moments = {index: Moment(*moment) for index, moment in found["moments"]}
        self._polls = {index: (pending, ready) for index, (pending, ready) in found["polls"]}
        self._num_chains, self._told_until, self.num_lost, self.num_other = found["counts"]
