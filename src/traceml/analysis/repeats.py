"""Divides steps whose edges come in an order that came before, by its plan: quicker, and to the same nanosecond."""

from __future__ import annotations

from operator import sub
from typing import Any, Dict, Final, Optional, Sequence

from traceml.analysis.division import FIRST_REGION, INPUT, NUM_PHASES, SYNC, Draft, Period
from traceml.analysis.plans import Plan, Plans
from traceml.analysis.traced import MOST, TracedSteps
from traceml.analysis.waited import PeriodFetches
from traceml.schema.known import plus
from traceml.schema.records import StepRecord
from traceml.schema.syncs import SyncCut
from traceml.wire import edges

_Counted = Dict[int, int]
_NOTHING: Final[_Counted] = {}


class RepeatedSteps(TracedSteps):
    """Steps that are taken whole, where nothing but their own edges decides over them: on the host's clock."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._plans = Plans()
        self.num_repeated = 0

    @property
    def _may_repeat(self) -> bool:
        return not (self._is_inferring or self._timeline.is_on)

    def _repeat(self, stamps: Sequence[float], codes: bytes, first: int, position: int) -> int:
        """Takes whole steps from index `first` on; gives the index of the first edge that is to be looked at.

        Args:
            stamps: Seconds, or values.
            codes: As many.
            first: Where to begin.
            position: The absolute one of index 0.
        """
        fetches, at, end_ns = self._fetches, first, self._last_ns
        is_between = position + first == self._between_at and end_ns == self._period_ns and self._has_forward
        if not is_between or not fetches.is_between:
            return first
        records: list[StepRecord] = []
        while True:
            end = codes.find(edges.STEP_END, at) + 1
            plan = self._plans.of(codes[at:end]) if end else None
            if plan is None or (plan.fetches and not fetches.is_fed) or (plan.is_counted and not self._was_counted):
                break
            record = self._divided(plan, stamps[at:end], end_ns, self._step + len(records) + 1)
            if record is None:
                break
            records.append(record)
            at, end_ns = end, record.end_ns
        if records:
            self._hold(records, position + at)
        return at

    def _divided(self, plan: Plan, entries: Sequence[float], start_ns: int, step: int) -> Optional[StepRecord]:
        """The record of a step; None: a stamp or a value is not what it should be."""
        stamps = entries if plan.stamps_of is None else plan.stamps_of(entries)
        at_ns = [int(stamp * 1e9) for stamp in stamps]
        spent_ns = list(map(sub, at_ns, [start_ns, *at_ns]))
        counted = _numbers(plan, entries) if plan.values else _NOTHING
        if min(spent_ns) < 0 or counted is None:
            return None
        acc: list[Any] = list(plan.blank)
        if plan.num_syncs:
            cut = _cut(plan, spent_ns, acc, at_ns)
        else:
            cut = None
            for slot, ns in zip(plan.slots, spent_ns):
                acc[slot] += ns
        num_samples, num_tokens = self._fetch(plan, spent_ns, acc[INPUT], counted)
        if self._was_counted:
            num_samples, num_tokens = counted.get(edges.COUNTED_SAMPLES), counted.get(edges.COUNTED_TOKENS)
        regions: tuple[tuple[int, int], ...] = ()
        if plan.regions:
            regions = tuple([(slot - FIRST_REGION, acc[slot]) for slot in plan.regions])
        end_ns = at_ns[-1]
        return StepRecord(
            self.state.identity.rank,
            step,
            end_ns,
            end_ns - start_ns,
            tuple(acc[:NUM_PHASES]),
            regions,
            0,
            len(plan.fetches) or plan.num_backwards,
            plan.num_optimizer_steps,
            num_samples,
            num_tokens,
            counted.get(edges.USER_STEP),
            None,
            None,
            cut,
        )

    def _fetch(
        self, plan: Plan, spent_ns: Sequence[int], waited_ns: int, counted: _Counted
    ) -> tuple[Optional[int], Optional[int]]:
        """Tells of a step's fetches; how many samples and tokens they brought."""
        if len(plan.fetches) > 1:
            waits = [sum([spent_ns[at] for at in fetch]) for fetch in plan.fetches]
        else:
            waits = [waited_ns] if plan.fetches else []
        num_samples = self._fetches.repeated(
            waits, num_forwards=plan.num_forwards, num_forwards_before=plan.num_forwards_before
        )
        if edges.SAMPLES in counted:
            num_samples = plus(num_samples, self._fetches.beyond_assumed(counted[edges.SAMPLES]))
        return num_samples, counted.get(edges.TOKENS)

    def _hold(self, records: list[StepRecord], position: int) -> None:
        """Behind these steps it goes on as behind any other."""
        first, last, serial = records[0], records[-1], self._fetches.serial
        self._step, self.position = last.step, position
        self._last_ns = self._period_ns = last.end_ns
        self._between_at = position
        self._raised.clear()
        self.num_repeated += len(records)
        draft = Draft(
            last.step,
            first.end_ns - first.period_ns,
            last.end_ns,
            Period.fresh(),
            PeriodFetches(),
            None,
            position,
            serial,
            self._fetches.num_fetches(serial),
            repeated=records,
            was_counted=self._was_counted,
        )
        self._held.append(draft)


def _numbers(plan: Plan, entries: Sequence[float]) -> Optional[_Counted]:
    """What the values of a step say, added up by their code."""
    found: _Counted = {}
    for code, at in plan.values:
        value = entries[at]
        if not 0 <= value < MOST:
            return None
        found[code] = int(value) + (found.get(code, 0) if code != edges.USER_STEP else 0)
    return found


def _cut(plan: Plan, spent_ns: Sequence[int], acc: list[Any], at_ns: Sequence[int]) -> SyncCut:
    """Adds the times up in `acc`, slot by slot; gives them as they stood at the end of the last sync."""
    synced_ns = longest_ns = begin = 0
    for end in plan.sync_ends:
        for slot, ns in zip(plan.slots[begin:end], spent_ns[begin:end]):
            acc[slot] += ns
        longest_ns, synced_ns, begin = max(longest_ns, acc[SYNC] - synced_ns), acc[SYNC], end
    before = tuple([ns or 0 for ns in acc[:NUM_PHASES]])
    regions: tuple[tuple[int, int], ...] = ()
    if plan.regions:
        regions = tuple([(slot - FIRST_REGION, acc[slot]) for slot in plan.regions])
    for slot, ns in zip(plan.slots[begin:], spent_ns[begin:]):
        acc[slot] += ns
    return SyncCut(plan.num_syncs, at_ns[begin - 1], longest_ns, before, regions)
