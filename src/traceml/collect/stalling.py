"""Watches whether ranks wait for one that does not come, and keeps one event of each such stall."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Mapping, Optional, Sequence

from traceml.analysis.stalls import Periods, alone, may_wait_for_work, stall_of
from traceml.collect.processes import Work, has_started, waits_for_disk, work_below
from traceml.schema.records import Event
from traceml.schema.stalls import ASLEEP, BUSY, DELEGATES, ENDED, GONE, Stall

if TYPE_CHECKING:
    from traceml.collect.life import Life
    from traceml.collect.tail import RingTail
    from traceml.schema.records import LiveSlot, ProcessSample, StepRecord

_BUSY_PERCENT: Final = 10.0  # of a core
_MUCH_BYTES_PER_S: Final = 1 << 20  # of those below: a logger writes less
_OLD_NS: Final = 2_000_000_000  # before it could be a stall
_WORKS_ON_NS: Final = 3_000_000_000  # what works in bursts, between two of them
_RENEWED_NS: Final = 10_000_000_000
_LEFT: Final = ("shutdown", "trace-max-steps")  # the training goes on unseen


class Stalling:
    """The stall that lasts, and what is needed to see one."""

    def __init__(self) -> None:
        self._periods = Periods()
        self._samples: dict[int, ProcessSample] = {}
        self._does: dict[int, str] = {}
        self._stall: Optional[Stall] = None
        self._alone: Optional[Stall] = None  # nobody waits any more: the others are gone
        self._told_ns = self._looked_ns = 0
        self._back_ns: Optional[int] = None  # since the last look: the first step's end of the rank that was waited for
        self._paused_ns: dict[int, int] = {}  # by rank the longest pause of its own
        self._below: dict[int, tuple[int, Work]] = {}  # of a rank that sleeps: when, and what those below it had used
        self._worked_ns: dict[int, int] = {}  # when a rank, or one below it, was last seen at work

    def feed(self, steps: Sequence[StepRecord]) -> None:
        """Takes newly finished steps in."""
        self._periods.feed(steps)
        stall = self._stall
        if stall is not None and self._back_ns is None:
            ends_ns = (step.end_ns for step in steps if step.rank == stall.rank and step.end_ns > stall.since_ns)
            self._back_ns = next(ends_ns, None)

    def sampled(self, more: Mapping[str, Any]) -> None:
        """Takes a round of samples in: what the processes did since the round before."""
        for sample in more.get("processes", ()):
            before = self._samples.get(sample.rank)
            self._samples[sample.rank] = sample
            self._does[sample.rank] = does = _activity(sample, before)
            if does == BUSY:
                self._worked_ns[sample.rank] = sample.at_ns

    def memory_of(self, rank: int) -> Optional[int]:
        """What a rank's process held when it was looked at last, in bytes."""
        sample = self._samples.get(rank)
        return None if sample is None else sample.rss_bytes

    def look(self, slots: Sequence[LiveSlot], tails: Sequence[RingTail], life: Life, *, now_ns: int) -> list[Event]:
        """What is new of a stall: its event, which replaces what was known of it."""
        ends = [tail.state.end for tail in tails]
        if any(end is not None and end.how in _LEFT for end in ends):
            return self.over(now_ns)
        does, left_ns = dict(self._does), {}
        for tail, end in zip(tails, ends):
            if end is not None or life.is_gone(tail.pid):
                rank, said_ns = tail.state.identity.rank, None if end is None else end.at_ns
                does[rank] = ENDED if end is not None and end.how == "end" else GONE
                left_ns[rank] = said_ns or life.gone_ns(tail.pid) or 0
        self._look_closer(slots, tails, does, now_ns=now_ns)
        stall = stall_of(
            slots,
            now_ns=now_ns,
            p99_ns=self._periods.p99_ns(),
            does=does,
            world_size=max((tail.state.identity.world_size for tail in tails), default=1),
            paused_ns=self._paused_ns,
            left_ns=left_ns,
        )
        before = self._stall
        self._alone = None if stall is not None else alone(slots, does=does, before=before or self._alone)
        if before is not None and stall is not None and (before.rank, before.step) == (stall.rank, stall.step):
            stall = stall._replace(since_ns=before.since_ns)  # it is the same one
        is_over = before is not None and (stall is None or before.since_ns != stall.since_ns)
        events = self._end(slots, left_ns, now_ns) if is_over else []
        self._stall, self._looked_ns, self._back_ns = stall, now_ns, None
        if stall is None:
            return events
        if before is None or before[:3] != stall[:3] or now_ns - self._told_ns >= _RENEWED_NS:
            self._told_ns = now_ns
            events.append(_event(stall, now_ns))
        return events

    def _end(self, slots: Sequence[LiveSlot], left_ns: Mapping[int, int], now_ns: int) -> list[Event]:
        """A stall is over since the rank went on, or left, behind the last look; a pause it came back from is known."""
        stall = self._stall
        assert stall is not None
        went_on_ns = [slot.since_ns for slot in slots if slot.rank == stall.rank]
        seen_ns = [*went_on_ns, self._back_ns or 0, left_ns.get(stall.rank, 0)]
        ended_ns = min((ns for ns in seen_ns if self._looked_ns < ns < now_ns), default=now_ns)
        if stall.is_own and stall.rank not in left_ns:
            known_ns = self._paused_ns.get(stall.rank, 0)
            self._paused_ns[stall.rank] = max(known_ns, ended_ns - stall.since_ns)
        return self.over(ended_ns)

    def _look_closer(
        self, slots: Sequence[LiveSlot], tails: Sequence[RingTail], does: dict[int, str], *, now_ns: int
    ) -> None:
        """A rank that sleeps may wait for its storage, or for a process that it has started, and that works."""
        pids = {tail.state.identity.rank: tail.pid for tail in tails}
        for slot in slots:
            rank = slot.rank
            is_old = rank in pids and may_wait_for_work(slot.phase) and now_ns - slot.since_ns >= _OLD_NS
            if does.get(rank) != ASLEEP or not is_old:
                self._below.pop(rank, None)
                continue
            used, before = work_below(pids[rank]), self._below.get(rank)
            self._below[rank] = (now_ns, used)
            if before is None:
                does[rank] = BUSY  # nobody knows yet, and that is no alarm
            elif _has_worked(used, before[1], now_ns - before[0]) or waits_for_disk(pids[rank]):
                self._worked_ns[rank] = now_ns
            if now_ns - self._worked_ns.get(rank, -_WORKS_ON_NS) < _WORKS_ON_NS:
                does[rank] = BUSY
            elif does[rank] == ASLEEP and has_started(pids[rank], since_ns=slot.since_ns):
                does[rank] = DELEGATES

    def marked(self, slots: Sequence[LiveSlot]) -> list[LiveSlot]:
        """The slots, with what is seen of a stall in that of the rank that is waited for, or that alone is left."""
        stall = self._stall or self._alone
        if stall is None:
            return list(slots)
        return [replace(s, stall=stall.kind, told=stall.text) if s.rank == stall.rank else s for s in slots]

    def over(self, now_ns: int) -> list[Event]:
        """Nobody waits too long any more: the event of the stall that lasted until now, with how long."""
        stall, self._stall = self._stall, None
        return [] if stall is None else [_event(stall, now_ns)]


def _activity(sample: ProcessSample, before: Optional[ProcessSample]) -> str:
    if before is None or sample.cpu_percent is None:
        return ""
    counters = ((sample.read_bytes, before.read_bytes), (sample.write_bytes, before.write_bytes))
    has_moved = any(now is not None and then is not None and now > then for now, then in counters)
    return BUSY if sample.cpu_percent >= _BUSY_PERCENT or has_moved else ASLEEP


def _has_worked(used: Work, before: Work, passed_ns: int) -> bool:
    passed_s = max(1, passed_ns) / 1e9
    percent = 100 * (used.cpu_s - before.cpu_s) / passed_s
    return percent >= _BUSY_PERCENT or used.io_bytes - before.io_bytes >= _MUCH_BYTES_PER_S * passed_s


def _event(stall: Stall, now_ns: int) -> Event:
    duration_ns = max(0, now_ns - stall.since_ns)
    return Event(stall.kind, stall.rank, stall.step, stall.since_ns, duration_ns, text=stall.text)
