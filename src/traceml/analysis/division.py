"""Divides a finished period among its phases, and makes the record of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Optional, Sequence

from traceml.analysis.cuts import Cut
from traceml.analysis.waited import PeriodFetches
from traceml.schema import phases
from traceml.schema.known import plus
from traceml.schema.records import Segment, StepRecord
from traceml.schema.syncs import SyncCut
from traceml.wire import edges

# Slots of the accumulators: the phases, the regions, then three whose phase is known only later.
NUM_PHASES: Final = len(phases.PHASES)
FIRST_REGION: Final = NUM_PHASES
FETCH: Final = NUM_PHASES + phases.MAX_REGIONS
STARTING: Final = FETCH + 1
NO_GRAD: Final = FETCH + 2
NUM_SLOTS: Final = FETCH + 3
REGIONS: Final = range(FIRST_REGION, FETCH)
INPUT: Final = phases.PHASE_INDEX[phases.INPUT]
FORWARD: Final = phases.PHASE_INDEX[phases.FORWARD]
BACKWARD: Final = phases.PHASE_INDEX[phases.BACKWARD]
SYNC: Final = phases.PHASE_INDEX[phases.SYNC]
OPTIMIZER: Final = phases.PHASE_INDEX[phases.OPTIMIZER]
EVAL: Final = phases.PHASE_INDEX[phases.EVAL]
IN_STEP: Final = phases.PHASE_INDEX[phases.IN_STEP]
BETWEEN: Final = phases.PHASE_INDEX[phases.BETWEEN_STEPS]

#: The slot of each code that opens a phase.
SLOT_OF: Final = [0] * edges.CLOSE
for _code, _phase in edges.PHASE_OF.items():
    SLOT_OF[_code] = phases.PHASE_INDEX[_phase]
for _number in range(phases.MAX_REGIONS):
    SLOT_OF[edges.FIRST_REGION + _number] = FIRST_REGION + _number
SLOT_OF[edges.INPUT], SLOT_OF[edges.ITERATOR], SLOT_OF[edges.FORWARD_NO_GRAD] = FETCH, STARTING, NO_GRAD


_NOTHING: Final = [0] * NUM_SLOTS
_UNSEEN: Final = [False] * NUM_SLOTS


@dataclass
class Period:
    """What is added up while a period is open: exclusive nanoseconds and whether an edge was seen, by slot."""

    acc: list[int]
    seen: list[bool]
    num_backwards: int = 0
    num_optimizer_steps: int = 0
    counted_samples: Optional[int] = None
    counted_tokens: Optional[int] = None
    user_step: Optional[int] = None
    is_fed_before: bool = False  # a training iterator was exhausted: the batch in hand was fetched in another period
    no_grad_to: Optional[int] = None  # the slot that no-grad forwards turned out to be
    cut: Optional[Cut] = None  # at the end of its last sync

    @classmethod
    def fresh(cls) -> Period:
        """An empty one."""
        return cls(_NOTHING[:], _UNSEEN[:])

    def merge(self, other: Period) -> None:
        """Takes in the times and counts of the period that follows."""
        if other.cut is not None:
            if self.cut is not None:
                other.cut.num_syncs += self.cut.num_syncs
                other.cut.longest_ns = max(other.cut.longest_ns, self.cut.longest_ns)
            self.cut = other.cut
        for slot in range(NUM_SLOTS):
            self.acc[slot] += other.acc[slot]
            self.seen[slot] |= other.seen[slot]
        self.num_backwards += other.num_backwards
        self.num_optimizer_steps += other.num_optimizer_steps
        self.is_fed_before |= other.is_fed_before
        if other.counted_samples is not None:
            self.counted_samples = other.counted_samples + (self.counted_samples or 0)
        if other.counted_tokens is not None:
            self.counted_tokens = other.counted_tokens + (self.counted_tokens or 0)
        self.user_step = self.user_step if other.user_step is None else other.user_step
        self.no_grad_to = self.no_grad_to if other.no_grad_to is None else other.no_grad_to

    def move(self, slot: int, to: int) -> None:
        """Gives a slot's time to another."""
        if self.acc[slot]:
            self.acc[to] += self.acc[slot]
            self.seen[to] = True
            if slot == NO_GRAD:
                self.no_grad_to = to
        self.acc[slot], self.seen[slot] = 0, False
        if self.cut is not None:
            acc = self.cut.acc
            acc[to], acc[slot] = acc[to] + acc[slot], 0


@dataclass
class DeviceDraft:
    """A step on the device's clock by slot; fetches by their iterator, as whose they were is known late."""

    period_ns: int
    acc: list[int]
    waits: dict[int, int]
    run_ahead_ns: tuple[Optional[int], Optional[int]] = (None, None)


@dataclass
class Draft:
    """A period whose edges are all known, but perhaps not yet whose its fetches were."""

    step: int
    start_ns: int
    end_ns: int
    period: Period
    fetches: PeriodFetches
    failed_in: Optional[str]
    position: int  # behind the step's end
    serial: int
    num_fetches: int  # of that iterator, so far
    inference: Optional[dict[str, Any]] = None  # where steps are inferred: how to go on behind it
    timeline: Any = None  # where there is a device's clock: its Snapshot there
    device: Optional[DeviceDraft] = None
    is_settled: bool = True  # nothing more will be known of it on the device's clock
    repeated: Sequence[StepRecord] = ()  # the steps up to its end, where they are divided already
    was_counted: bool = False  # by hand, when they were


def record_of(draft: Draft, *, rank: int, was_counted: bool) -> StepRecord:
    """The record of a draft whose fetches are decided, on the host's clock.

    Samples counted by hand replace those read off batches.
    """
    period, num_micro_batches, epoch_start_ns = draft.period, 0, 0
    num_samples = num_tokens = None
    for waited in draft.fetches.training.values():
        num_micro_batches = max(num_micro_batches, waited.num_fetches)
        epoch_start_ns += waited.epoch_start_ns
        num_samples = plus(num_samples, waited.num_samples)
        num_tokens = plus(num_tokens, waited.num_tokens)
    if was_counted:
        num_samples, num_tokens = period.counted_samples, period.counted_tokens
    phase_ns, region_ns, period_ns = _divide(draft.start_ns, draft.end_ns, period, draft.fetches)
    return StepRecord(  # in order: keywords cost a microsecond here, 20,000 times a second
        rank,
        draft.step,
        draft.end_ns,
        period_ns,
        phase_ns,
        region_ns,
        epoch_start_ns,
        num_micro_batches or (0 if period.is_fed_before else period.num_backwards),
        period.num_optimizer_steps,
        num_samples,
        num_tokens,
        period.user_step,
        draft.failed_in,
        None,
        None if period.cut is None else _sync_cut(period.cut, draft, phase_ns, region_ns),
    )


def _sync_cut(
    cut: Cut, draft: Draft, phase_ns: tuple[Optional[int], ...], region_ns: tuple[tuple[int, int], ...]
) -> SyncCut:
    """The part of a divided step before the end of its last sync. What no edge covers was before the first one."""
    acc, training = cut.acc, draft.fetches.training
    before = acc[:NUM_PHASES]
    for serial, ns in cut.waited.items():
        of_training = min(ns, training[serial].ns) if serial in training else 0
        before[INPUT] += of_training
        before[EVAL] += ns - of_training
    before[EVAL] += cut.eval_ns
    before[BETWEEN] += (phase_ns[BETWEEN] or 0) - draft.period.acc[BETWEEN]
    return SyncCut(
        cut.num_syncs,
        cut.end_ns,
        cut.longest_ns,
        tuple([part if whole is not None and part <= whole else whole or 0 for part, whole in zip(before, phase_ns)]),
        tuple([(number, min(acc[FIRST_REGION + number], whole)) for number, whole in region_ns]) if region_ns else (),
    )


def segment_of(kind: str, *, rank: int, start_ns: int, end_ns: int, period: Period, fetches: PeriodFetches) -> Segment:
    """The startup or the tail."""
    period.move(NO_GRAD, FORWARD)
    period.move(FETCH, BETWEEN)  # a fetch that never ended
    period.move(STARTING, BETWEEN)
    phase_ns, region_ns, duration_ns = _divide(start_ns, end_ns, period, fetches)
    return Segment(rank, kind, start_ns, duration_ns, phase_ns, region_ns)


def _divide(
    start_ns: int, end_ns: int, period: Period, fetches: PeriodFetches
) -> tuple[tuple[Optional[int], ...], tuple[tuple[int, int], ...], int]:
    """Phases, regions and duration; what no edge covers (before the first one) is between the steps."""
    acc, seen = period.acc, period.seen
    times: list[Optional[int]] = [ns if was_seen else None for ns, was_seen in zip(acc[:NUM_PHASES], seen)]
    known_ns = sum(acc)  # a slot that was not seen holds 0, those that are decided late hold 0 by now
    for waited in fetches.training.values():
        times[INPUT] = (times[INPUT] or 0) + waited.ns
        known_ns += waited.ns
    if fetches.had_eval or fetches.undecided:
        late_ns = fetches.eval_ns + sum(waited.ns for waited in fetches.undecided.values())
        times[EVAL] = (times[EVAL] or 0) + late_ns
        known_ns += late_ns
    regions: tuple[tuple[int, int], ...] = ()
    if True in seen[FIRST_REGION:FETCH]:
        regions = tuple((slot - FIRST_REGION, acc[slot]) for slot in range(FIRST_REGION, FETCH) if seen[slot])
    period_ns = end_ns - start_ns
    times[IN_STEP] = acc[IN_STEP]
    times[BETWEEN] = acc[BETWEEN] + max(0, period_ns - known_ns)
    return tuple(times), regions, max(period_ns, known_ns)
