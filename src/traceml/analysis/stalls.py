"""Tells a hang from a pause: some ranks wait for the others, and another one has been elsewhere for too long."""

from __future__ import annotations

from typing import Final, Iterable, Mapping, Optional, Sequence

from traceml.schema import phases, units
from traceml.schema.records import LiveSlot, StepRecord
from traceml.schema.stalls import BUSY, ENDED, GONE, HANG, WAIT, Stall

_LEAST_NS: Final = 5_000_000_000
_TIMES: Final = 20  # the p99 of the period
_PATIENT: Final = 10  # times that, where the script may well take its time
_NUM_EARLY: Final = 8  # steps
_SLOW: Final = (phases.EVAL, phases.CHECKPOINT, phases.COMPILE)
_NOT_TRAINING: Final = tuple(phases.PHASE_INDEX[phase] for phase in _SLOW)
_NUM_PERIODS: Final = 1024
_FEW: Final = 100  # periods, up to which the p99 is the largest


def may_wait_for_work(phase: str) -> bool:
    """Whether a rank that works, or has others work for it, may well be long in this phase: the script's own pause.

    A fetch is one of them: which fetches are an evaluation's is known only later.
    """
    return phase in (phases.BETWEEN_STEPS, phases.INPUT) or phase.startswith(phases.REGION_PREFIX)


class Periods:
    """How long steps take without evaluations, checkpoints and compilation: the newest 1,024 of all ranks."""

    def __init__(self) -> None:
        self._ns: list[int] = []
        self._at = 0

    def feed(self, steps: Iterable[StepRecord]) -> None:
        """Takes newly finished steps in."""
        for step in steps:
            ns = step.period_ns - sum([step.phase_ns[phase] or 0 for phase in _NOT_TRAINING])
            if len(self._ns) < _NUM_PERIODS:
                self._ns.append(ns)
            else:
                self._ns[self._at] = ns
                self._at = (self._at + 1) % _NUM_PERIODS

    def p99_ns(self) -> int:
        """Of those; 0 without any."""
        ordered = sorted(self._ns)
        return ordered[-1 - len(ordered) // _FEW] if ordered else 0


def stall_of(
    slots: Sequence[LiveSlot], *, now_ns: int, p99_ns: int, does: Mapping[int, str], world_size: int
) -> Optional[Stall]:
    """Who is waited for, longer than steps ever take; None while all goes on, and while nobody waits: that is a pause.

    Args:
        slots: What the ranks that were heard do.
        now_ns: When.
        p99_ns: Of the period, by `Periods`.
        does: By rank what its process does, as far as known: BUSY, ASLEEP, GONE (died) or ENDED (well, and early).
        world_size: How many ranks there are.
    """
    if world_size < 2 or not slots:  # noqa: PLR2004  # one rank alone never hangs
        return None
    limit_ns = max(_LEAST_NS, _TIMES * p99_ns)
    has_left = [slot.rank for slot in slots if does.get(slot.rank) in (GONE, ENDED)]
    waiting = [slot for slot in slots if slot.phase == phases.SYNC and slot.rank not in has_left]
    others = [slot for slot in slots if slot not in waiting]
    if not waiting:
        return None
    waits_since_ns = max(slot.since_ns for slot in waiting)
    if not others:
        return _all_wait(waiting, now_ns, limit_ns, waits_since_ns, world_size)
    slot = min(others, key=lambda other: (other.rank not in has_left, other.since_ns))
    what = does.get(slot.rank, "")
    took_ns = now_ns - (waits_since_ns if slot.rank in has_left else slot.since_ns)
    is_slow = slot.phase in _SLOW or (may_wait_for_work(slot.phase) and what == BUSY)
    is_patient = is_slow or slot.step <= _NUM_EARLY
    is_hang = took_ns >= limit_ns * (_PATIENT if is_patient and slot.rank not in has_left else 1) and not slot.halted
    if not is_hang and min(now_ns - waits_since_ns, limit_ns) < limit_ns:
        return None
    text = f"{_does(slot, what)}; {_who(waiting)}"
    since_ns = waits_since_ns if slot.rank in has_left or took_ns < limit_ns else slot.since_ns
    return Stall(HANG if is_hang else WAIT, slot.rank, slot.step, slot.phase, since_ns, text)


def _all_wait(
    waiting: Sequence[LiveSlot], now_ns: int, limit_ns: int, since_ns: int, world_size: int
) -> Optional[Stall]:
    if now_ns - since_ns < limit_ns:
        return None
    steps = sorted({slot.step for slot in waiting})
    last = max(waiting, key=lambda slot: slot.since_ns)
    if len(steps) > 1:
        listed = ", ".join(units.count(step) for step in steps[:4])
        text = f"all ranks wait for one another, at different steps ({listed}): their collectives do not match"
    elif len(waiting) < world_size:
        text = "all ranks here wait: for a rank that is not heard here, or for the network"
    else:
        text = "all ranks wait at the same step: for the network, or in collectives that do not match"
    return Stall(HANG, last.rank, last.step, last.phase, since_ns, text)


def _does(slot: LiveSlot, what: str) -> str:
    if what == ENDED:
        return f"rank {slot.rank} has ended its training"
    if what == GONE:
        return f"rank {slot.rank} died in {phases.label(slot.phase)}"
    state = slot.halted or what
    return f"rank {slot.rank} in {phases.label(slot.phase)}{f', {state}' if state else ''}"


def _who(waiting: Sequence[LiveSlot]) -> str:
    ranks = sorted(slot.rank for slot in waiting)
    return f"rank {ranks[0]} waits" if len(ranks) == 1 else f"ranks {units.listed(ranks)} wait"
