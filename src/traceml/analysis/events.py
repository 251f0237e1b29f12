"""Turns what stands out of single steps into events: evaluations, checkpoints, epoch starts, spikes, failures."""

from __future__ import annotations

from collections import deque
from typing import Final, Iterator, Optional, Sequence, Union

from traceml.schema import phases, units
from traceml.schema.bill import SIGNALS, Shed
from traceml.schema.records import HALTED, Compilation, Event, Halt, StepFailure, StepRecord
from traceml.schema.room import OutOfMemory
from traceml.schema.syncs import CollectiveWait
from traceml.wire.codec import Body

_EVAL: Final = phases.PHASE_INDEX[phases.EVAL]
_CHECKPOINT: Final = phases.PHASE_INDEX[phases.CHECKPOINT]
_GC: Final = phases.PHASE_INDEX[phases.GC]
_MS: Final = 1_000_000
_EVAL_NS: Final = 5 * _MS  # shorter no-grad work is part of the loop, not an evaluation worth a line
_CHECKPOINT_NS: Final = 1 * _MS
_EPOCH_NS: Final = 20 * _MS
_GC_NS: Final = 20 * _MS
_SPIKE_NS: Final = 50 * _MS
_SPIKE_TIMES: Final = 4  # times the median of the steps before
_NUM_RECENT: Final = 32
_Told = Union[Compilation, CollectiveWait, OutOfMemory, Shed]
_NUM_ENDED: Final = 256  # steps whose messages may still come


class StepEvents:
    """Watches one rank's records and messages go by.

    `stored_ns` is the end of the step behind which a restarted reader goes on: what was told of before is stored.
    """

    def __init__(self) -> None:
        self.stored_ns = 0
        self._exceptions: dict[int, str] = {}  # the names of what failed steps raised, by the recorder's numbers
        self._recent_ns: deque[int] = deque(maxlen=_NUM_RECENT)
        self._ended: deque[tuple[int, int]] = deque(maxlen=_NUM_ENDED)  # when, and which step
        self._told: list[_Told] = []  # whose step has not ended yet
        self._late: list[tuple[_Told, int]] = []  # with the step that had ended when they came

    def learn(self, body: Body) -> None:
        """Takes in a message that is about a step: what it raised or had no memory for, what the compiler did.

        The recorder's numbers begin anew with the first `trace_step`, and count updates before it: so a compilation's
        step is found by its time. Its message may be read before or behind the step's end.
        """
        if isinstance(body, StepFailure):
            self._exceptions[body.step] = body.exception
            return
        told = _worth_telling(body)
        if told is not None and told.at_ns > self.stored_ns:
            step = next((step for end_ns, step in self._ended if end_ns >= told.at_ns), None)
            if step is None:
                self._told.append(told)
            else:
                self._late.append((told, step))

    def late(self, *, rank: int) -> list[Event]:
        """What messages have told since the last call of steps that had ended before."""
        late, self._late = self._late, []
        return [_of_message(body, rank=rank, step=step) for body, step in late]

    def told(self, *, rank: int, step: int, end_ns: int) -> list[Event]:
        """What messages have told of the step that ended at `end_ns`."""
        self._ended.append((end_ns, step))
        if not self._told:
            return []
        ended = [body for body in self._told if body.at_ns <= end_ns]
        self._told = [body for body in self._told if body.at_ns > end_ns]
        return [_of_message(body, rank=rank, step=step) for body in ended]

    def left(self, *, rank: int, step: int) -> list[Event]:
        """What messages have told behind the last step, which has this number."""
        left, self._told = self._told, []
        return [_of_message(body, rank=rank, step=step + getattr(body, "is_eager", True)) for body in left]

    def stands_out(self, record: StepRecord) -> bool:
        """Whether `of` has anything to look at: most steps are short and have none of it."""
        period_ns = record.period_ns if record.device is None else record.device.period_ns
        if period_ns >= _CHECKPOINT_NS or record.failed_in is not None:
            return True
        self._recent_ns.append(period_ns)
        return False

    def of(self, record: StepRecord, *, num_before: int = 0) -> Iterator[Event]:
        """The events of one record, by the device's clock where it has one.

        A step that waits for all that was queued before (`loss.item()` every 50 steps) is long on the host's alone.

        Args:
            record: The next one.
            num_before: Steps that were inferred before the first `trace_step`.
        """
        if record.failed_in == HALTED:
            return  # told by `halted`: what its phases took says nothing
        own = record.device or record
        eval_ns, checkpoint_ns = own.phase_ns[_EVAL] or 0, own.phase_ns[_CHECKPOINT] or 0
        gc_ns = record.phase_ns[_GC] or 0  # the host's alone
        if eval_ns >= _EVAL_NS:
            yield self._event("evaluation", record, eval_ns)
        if checkpoint_ns >= _CHECKPOINT_NS:
            yield self._event("checkpoint", record, checkpoint_ns)
        if own.epoch_start_ns >= _EPOCH_NS:
            yield self._event("epoch start", record, own.epoch_start_ns)
        if gc_ns >= _GC_NS:
            yield self._event("garbage collection", record, gc_ns)
        if record.failed_in is not None:
            name = self._exceptions.pop(record.step - num_before, "")
            text = f"{name} in {phases.label(record.failed_in)}" if name else f"in {phases.label(record.failed_in)}"
            yield Event("failed step", record.rank, record.step, record.end_ns, record.period_ns, text=text)
            return
        rest_ns = max(0, own.period_ns - eval_ns - checkpoint_ns - own.epoch_start_ns - gc_ns)
        if rest_ns >= _SPIKE_NS and len(self._recent_ns) == _NUM_RECENT:
            typical = sorted(self._recent_ns)[_NUM_RECENT // 2]
            if rest_ns >= _SPIKE_TIMES * typical:
                yield self._spike(record, rest_ns)
        self._recent_ns.append(rest_ns)

    def halted(self, record: StepRecord, halts: Sequence[Halt]) -> Event:
        """The first step of a halt."""
        why = " and ".join(sorted({halt.why for halt in halts}))
        return Event("halted", record.rank, record.step, record.end_ns, record.period_ns, text=why)

    def _event(self, kind: str, record: StepRecord, duration_ns: int) -> Event:
        return Event(kind, record.rank, record.step, record.end_ns, duration_ns)

    def _spike(self, record: StepRecord, duration_ns: int) -> Event:
        parts = [
            (ns or 0, phases.PHASES[i])
            for i, ns in enumerate((record.device or record).phase_ns)
            if i not in (_EVAL, _CHECKPOINT, _GC)
        ]
        return Event(
            "slow step", record.rank, record.step, record.end_ns, duration_ns, text=phases.label(max(parts)[1])
        )


def _worth_telling(body: Body) -> Optional[_Told]:
    """The message, where it is worth an event."""
    if isinstance(body, Compilation):
        return body if body.is_again or body.is_eager else None
    return body if isinstance(body, (CollectiveWait, OutOfMemory, Shed)) else None


def _of_message(body: _Told, *, rank: int, step: int) -> Event:
    if isinstance(body, Shed):
        return Event("given up", rank, body.step, body.at_ns, text=SIGNALS.get(body.signal, body.signal))
    if isinstance(body, CollectiveWait):
        return Event("wait", rank, step, body.at_ns, body.duration_ns, text=f"{body.call} at {body.where}")
    if isinstance(body, OutOfMemory):
        wanted = f"{units.size(body.requested_bytes)} wanted in {phases.label(body.phase)}"
        return Event("out of memory", rank, step, body.at_ns, text=wanted)
    kind = "now eager" if body.is_eager else "recompilation"
    text = ": ".join(part for part in (body.function, body.reason) if part)
    step = max(1, step - 1) if body.is_eager else step  # which is noticed behind the step that it came up in
    return Event(kind, rank, step, body.at_ns, body.duration_ns or None, text=text)
