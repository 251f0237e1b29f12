"""Tells a hang from a pause: some ranks wait for the others, and another one has been elsewhere for too long."""

from __future__ import annotations

from typing import Final, Iterable, Mapping, Optional, Sequence

from traceml.schema import phases, units
from traceml.schema.records import LiveSlot, StepRecord
from traceml.schema.stalls import BUSY, DELEGATES, ENDED, GONE, HANG, WAIT, Stall

_LEAST_NS: Final = 5_000_000_000
_TIMES: Final = 20  # the p99 of the period
_PATIENT: Final = 10  # times that, where the script may well take its time
_BY_FAR: Final = 2  # times as long as the longest pause of its own that a rank has come back from
_NUM_EARLY: Final = 8  # steps
_SLOW: Final = (phases.EVAL, phases.CHECKPOINT, phases.COMPILE)
_NOT_TRAINING: Final = tuple(phases.PHASE_INDEX[phase] for phase in _SLOW)
_NUM_PERIODS: Final = 1024
_NONE: Final[Mapping[int, int]] = {}
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
    slots: Sequence[LiveSlot],
    *,
    now_ns: int,
    p99_ns: int,
    does: Mapping[int, str],
    world_size: int,
    paused_ns: Mapping[int, int] = _NONE,
    left_ns: Mapping[int, int] = _NONE,
) -> Optional[Stall]:
    """Who is waited for, longer than steps ever take; None while all goes on, and while nobody waits: that is a pause.

    Args:
        slots: What the ranks that were heard do.
        now_ns: When.
        p99_ns: Of the period, by `Periods`.
        does: By rank what its process does, as far as known: BUSY, ASLEEP, DELEGATES, GONE (died) or ENDED (well, and
            early).
        world_size: How many ranks there are.
        paused_ns: By rank the longest pause of its own (`Stall.is_own`) that it has come back from.
        left_ns: By rank when it died, or ended.
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
    left_since_ns = max(waits_since_ns, left_ns.get(slot.rank, 0))
    took_ns = now_ns - (left_since_ns if slot.rank in has_left else slot.since_ns)
    is_own = slot.phase == phases.BETWEEN_STEPS and all(other.by_script for other in waiting)
    is_slow = slot.phase in _SLOW or (may_wait_for_work(slot.phase) and what == BUSY) or (is_own and what == DELEGATES)
    is_patient = (is_slow or slot.step <= _NUM_EARLY) and slot.rank not in has_left
    known_ns = _BY_FAR * paused_ns.get(slot.rank, 0) if is_own and slot.rank not in has_left else 0
    is_hang = took_ns >= max(limit_ns * (_PATIENT if is_patient else 1), known_ns) and not slot.halted
    if not is_hang and (now_ns - waits_since_ns < limit_ns or slot.rank in has_left):
        return None
    text = f"{_does(slot, what)}; {_who(waiting)}"
    since_ns = left_since_ns if slot.rank in has_left else waits_since_ns if took_ns < limit_ns else slot.since_ns
    return Stall(HANG if is_hang else WAIT, slot.rank, slot.step, slot.phase, since_ns, text, is_own)


def alone(slots: Sequence[LiveSlot], *, does: Mapping[int, str], before: Optional[Stall]) -> Optional[Stall]:
    """The rank that stands still, or that all waited for, while others are gone: they are being torn down.

    Args:
        slots: What the ranks that were heard do.
        does: By rank what its process does, as `stall_of` has it.
        before: Who was waited for until now.
    """
    gone = [slot.rank for slot in slots if does.get(slot.rank) == GONE]
    left = [slot for slot in slots if slot.rank not in gone and does.get(slot.rank) != ENDED]
    for slot in left if gone else ():
        is_same = before is not None and (slot.rank, slot.step, slot.phase) == before[1:4]
        if slot.halted or is_same:
            kind = before.kind if before is not None and is_same else WAIT
            verb = f"rank {gone[0]} is" if len(gone) == 1 else f"ranks {units.listed(gone)} are"
            text = f"{_does(slot, does.get(slot.rank, ''))}; {verb} gone"
            return Stall(kind, slot.rank, slot.step, slot.phase, slot.since_ns, text)
    return None


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
