"""Keeps the own-work ledger: aligns the ranks' steps and says of each unit between two syncs what every rank did in it.

A collective makes the step times of all ranks equal, so step time names nobody; what each rank did between two
synchronisations does.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Iterable, Mapping, NamedTuple, Optional, Sequence

from traceml.analysis.pricing import Work, priced
from traceml.schema.phases import COMPILE, PHASE_INDEX, REGION_PREFIX, SYNC
from traceml.schema.records import StepRecord
from traceml.schema.syncs import LedgerState, SyncCut, Tens, UnitSums

MAX_WAITING: Final = 16_384  # steps of all ranks together that may wait for those of the others: about 10 MB
MIN_WAITING: Final = 256  # of each rank
BRIEF_NS: Final = 200_000  # no collective is so quick in all ranks: it was the end of a backward that reduced nothing
_TEN: Final = 10
_SYNC: Final = PHASE_INDEX[SYNC]
_COMPILE: Final = PHASE_INDEX[COMPILE]


class _Open(NamedTuple):
    """What a rank has done since the sync that opened the unit."""

    phase_ns: list[int]
    region_ns: dict[str, int]
    num_items: int
    sync_end_ns: int  # of the sync that opened it


class Ledger:
    """Takes the ranks' finished steps as they come and gives the units that are complete.

    Exact for ranks that lag; of those that lag by more than 16,384 steps in all ranks together (256 of a rank at
    least) the oldest steps are dropped and counted. A step in which a rank lacks a sync that others have, or has
    another number of them, belongs to no unit and is counted. Units with a failed step or compilation are left out.

    Args:
        world_size: How many ranks there are; nothing is said before every one of them was heard.
        state: That of an earlier ledger of this run; feed the stored steps from its `from_step` on first.
    """

    def __init__(self, world_size: int, state: Optional[LedgerState] = None) -> None:
        self._ranks = tuple(range(world_size))
        self._waiting: dict[int, deque[StepRecord]] = {rank: deque() for rank in self._ranks}
        self._max_waiting = max(MAX_WAITING // max(world_size, 1), MIN_WAITING)
        self._regions: dict[int, Mapping[int, str]] = {}
        self._open: Optional[list[_Open]] = None
        self._num_steps = 0  # of the open unit
        self._open_step = 0  # whose last sync opened it
        self._is_spoilt = False  # a step of it failed or compiled: warm-up, whenever it comes
        self._units: list[UnitSums] = []
        self._world_size = world_size
        state = state or LedgerState(world_size=world_size)
        self._from_step, self._num_synced = state.from_step, state.num_synced
        self._num_unaligned, self._unaligned = state.num_unaligned, state.unaligned
        self._num_without_partner = state.num_without_partner
        self._counted_step = state.from_step  # it opened the unit that the earlier ledger was adding up
        self._num_in_ten, self._ten_ns = state.num_in_ten, state.ten_ns

    @property
    def state(self) -> LedgerState:
        """How far it has come: what another ledger needs to go on."""
        return LedgerState(
            world_size=self._world_size,
            from_step=self._from_step,
            num_synced=self._num_synced,
            num_unaligned=self._num_unaligned,
            num_without_partner=self._num_without_partner,
            unaligned=self._unaligned,
            num_in_ten=self._num_in_ten,
            ten_ns=self._ten_ns,
        )

    def feed(self, rank: int, steps: Iterable[StepRecord], *, regions: Mapping[int, str]) -> None:
        """Takes a rank's next steps in, in order.

        Args:
            rank: Whose; one that is not of this world is passed over.
            steps: Finished ones.
            regions: The names of its regions.
        """
        waiting = self._waiting.get(rank)
        if waiting is None:
            return
        self._regions[rank] = regions
        waiting.extend(steps)
        while all(self._waiting.values()):
            self._take_step()
        if len(waiting) > self._max_waiting:
            num_dropped = len(waiting) - self._max_waiting
            for _ in range(num_dropped):
                waiting.popleft()
            self._open = None
            self._num_without_partner += num_dropped

    def take(self) -> tuple[UnitSums, ...]:
        """The units that were completed since the last take."""
        units, self._units = tuple(self._units), []
        return units

    def _take_step(self) -> None:
        """Takes the oldest step that any rank still has."""
        waiting = self._waiting
        heads = [waiting[rank][0].step for rank in self._ranks]
        oldest = min(heads)
        if oldest != max(heads):
            for rank, step in zip(self._ranks, heads):
                if step == oldest:
                    waiting[rank].popleft()
            self._open = None
            self._num_without_partner += 1
            self._from_step = oldest + 1
            return
        steps = [waiting[rank].popleft() for rank in self._ranks]
        syncs = [step.sync for step in steps if step.sync is not None]
        if all(sync.longest_ns < BRIEF_NS for sync in syncs):
            self._add(steps)
        elif len(syncs) < len(steps) or len({sync.num_syncs for sync in syncs}) > 1:
            self._open = None
            self._tell_unaligned(steps)
        else:
            self._close(steps, syncs)
        self._from_step = oldest + 1 if self._open is None else self._open_step

    def _add(self, steps: Sequence[StepRecord]) -> None:
        """Nobody synchronised in this step: the unit goes on."""
        if self._open is None:
            return
        self._num_steps += 1
        self._is_spoilt = self._is_spoilt or any(map(_is_odd, steps))
        self._open = [
            _Open(
                [mine + (ns or 0) for mine, ns in zip(one.phase_ns, step.phase_ns)],
                self._with_regions(one.region_ns, step, step.region_ns),
                one.num_items + _num_items(step),
                one.sync_end_ns,
            )
            for one, step in zip(self._open, steps)
        ]

    def _close(self, steps: Sequence[StepRecord], syncs: Sequence[SyncCut]) -> None:
        """The last sync of this step ends a unit, and opens the next one."""
        is_odd = any(map(_is_odd, steps))
        if self._open is not None and not self._is_spoilt and not is_odd:
            self._num_steps += 1
            self._end_unit(steps, syncs)
        self._open = [self._after(step, sync) for step, sync in zip(steps, syncs)]
        self._is_spoilt = is_odd and any(
            step.failed_in or one.phase_ns[_COMPILE] for step, one in zip(steps, self._open)
        )
        self._num_steps, self._open_step = 0, steps[0].step
        self._num_synced += steps[0].step != self._counted_step

    def _end_unit(self, steps: Sequence[StepRecord], syncs: Sequence[SyncCut]) -> None:
        assert self._open is not None
        works = []
        for one, step, sync in zip(self._open, steps, syncs):
            phase_ns = [mine + ns for mine, ns in zip(one.phase_ns, sync.phase_ns)]
            sync_ns, phase_ns[_SYNC] = sync.phase_ns[_SYNC], 0  # waiting is no work
            region_ns = self._with_regions(one.region_ns, step, sync.region_ns)
            items = one.num_items + _num_items(step)
            works.append(Work(phase_ns, region_ns, sync_ns, sync.end_ns, sync.end_ns - one.sync_end_ns, items))
        unit = priced(works, ranks=self._ranks, step=steps[0].step, num_steps=self._num_steps)
        self._units.append(unit._replace(tens=self._tens(unit.transfer.total)))

    def _after(self, step: StepRecord, sync: SyncCut) -> _Open:
        phase_ns = [(ns or 0) - before for ns, before in zip(step.phase_ns, sync.phase_ns)]
        if not step.region_ns:
            return _Open(phase_ns, {}, 0, sync.end_ns)
        before = dict(sync.region_ns)
        rest = tuple((number, ns - before.get(number, 0)) for number, ns in step.region_ns)
        return _Open(phase_ns, self._with_regions({}, step, rest), 0, sync.end_ns)

    def _with_regions(
        self, known: dict[str, int], step: StepRecord, region_ns: tuple[tuple[int, int], ...]
    ) -> dict[str, int]:
        if not region_ns:
            return known
        names, found = self._regions.get(step.rank, {}), dict(known)
        for number, ns in region_ns:
            name = REGION_PREFIX + names.get(number, str(number))
            found[name] = found.get(name, 0) + ns
        return found

    def _tens(self, transfer_ns: int) -> Tens:
        self._num_in_ten += 1
        self._ten_ns += transfer_ns
        if self._num_in_ten < _TEN:
            return Tens()
        mean_ns = self._ten_ns // _TEN
        self._num_in_ten = self._ten_ns = 0
        return Tens(1, mean_ns, (mean_ns // 1_000) ** 2)

    def _tell_unaligned(self, steps: Sequence[StepRecord]) -> None:
        nums = [step.sync.num_syncs if step.sync else 0 for step in steps]
        usual = sorted(nums)[len(nums) // 2] or max(nums)
        odd = next((rank for rank, num in zip(self._ranks, nums) if num != usual), self._ranks[-1])
        at = self._ranks.index(odd)
        other = next(number for number in (*nums[:at], *nums[at + 1 :]) if number != nums[at])
        said = f"rank {odd} synchronised {_times(nums[at])} in step {steps[0].step:,}, others {_times(other)}"
        self._num_unaligned += 1
        self._unaligned = self._unaligned or said


def _is_odd(step: StepRecord) -> bool:
    return step.failed_in is not None or bool(step.phase_ns[_COMPILE])


def _num_items(step: StepRecord) -> int:
    return step.num_tokens if step.num_tokens is not None else step.num_samples or 0


def _times(number: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(number, f"{number} times")
