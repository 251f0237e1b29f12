"""Plans how to divide a step whose edges come in a given order, so that steps that look like it need no second look."""

from __future__ import annotations

from operator import itemgetter
from typing import Callable, Final, NamedTuple, Optional, Sequence

from traceml.analysis.division import (
    BACKWARD,
    BETWEEN,
    EVAL,
    FETCH,
    FORWARD,
    IN_STEP,
    INPUT,
    NO_GRAD,
    OPTIMIZER,
    REGIONS,
    SLOT_OF,
    STARTING,
    SYNC,
)
from traceml.wire import edges

_MAX_KNOWN: Final = 256  # orders; a loop that has more of them is not one that repeats itself
_LATE: Final = (STARTING, NO_GRAD, EVAL)  # slots whose meaning hangs on more than the step itself
_COUNTED: Final = (edges.COUNTED_SAMPLES, edges.COUNTED_TOKENS)
_OF_A_BATCH: Final = (edges.SAMPLES, edges.TOKENS)
_VALUES: Final = (edges.USER_STEP, *_COUNTED, *_OF_A_BATCH)


class Plan(NamedTuple):
    """How to divide a step: the time before its n-th edge belongs to the n-th slot.

    `blank` holds, by slot, 0 for what has an edge and None for what has none. A fetch's slot is the input's; its
    intervals are those that it waits in.
    """

    stamps_of: Optional[Callable[[Sequence[float]], Sequence[float]]]  # None: all entries are stamps
    values: tuple[tuple[int, int], ...]  # code, and which entry
    slots: tuple[int, ...]
    sync_ends: tuple[int, ...]  # how many edges there are up to the end of each sync
    num_syncs: int
    blank: tuple[Optional[int], ...]
    regions: tuple[int, ...]  # slots
    fetches: tuple[tuple[int, ...], ...]
    num_forwards: int
    num_forwards_before: int  # the last fetch
    num_backwards: int
    num_optimizer_steps: int
    is_counted: bool


class Plans:
    """The plans of the orders that came more than once; of at most 256 orders."""

    def __init__(self) -> None:
        self._known: dict[bytes, Optional[Plan]] = {}
        self._once: set[bytes] = set()

    def of(self, codes: bytes) -> Optional[Plan]:
        """How to divide a step with these codes; None: each edge is to be looked at.

        Args:
            codes: From behind the end of the step before to its own end.
        """
        plan = self._known.get(codes)
        if plan is None and codes not in self._known:
            if codes in self._once:
                plan = self._known[codes] = _Planning().plan(codes)
                self._once.discard(codes)
            elif len(self._once) + len(self._known) < _MAX_KNOWN:
                self._once.add(codes)
            else:
                self._once.clear()
                self._known.clear()
        return plan


class _Planning:
    """One walk through a step's codes; what hangs on more than the step itself has no plan."""

    def __init__(self) -> None:
        self._stack = [BETWEEN]
        self._seen = {IN_STEP, BETWEEN}
        self._slots: list[int] = []
        self._sync_ends: list[int] = []
        self._fetches: list[tuple[int, ...]] = []
        self._waits: list[int] = []  # the intervals of the open fetch
        self._has_batch = False  # which no forward has used
        self._num_forwards = self._num_before = self._num_backwards = self._num_optimizer_steps = 0

    def plan(self, codes: bytes) -> Optional[Plan]:
        stamps: list[int] = []
        values: list[tuple[int, int]] = []
        for at, code in enumerate(codes):
            if code == edges.STEP_NUMBER:
                continue
            if code >= edges.FIRST_VALUE:
                if code not in _VALUES or (code in _OF_A_BATCH and not self._fetches):
                    return None
                values.append((code, at))
                continue
            stamps.append(at)
            if self._stack[-1] == FETCH:
                self._waits.append(len(self._slots))
            self._slots.append(INPUT if self._stack[-1] == FETCH else self._stack[-1])
            if not self._takes(code, is_last=at == len(codes) - 1):
                return None
        num_looks = sum(code == edges.SAMPLES for code, _ in values)
        if num_looks > 1 or (num_looks and len(self._fetches) > 1):
            return None  # whose batch each of them is hangs on the order
        return Plan(
            None if len(stamps) == len(codes) else itemgetter(*stamps),
            tuple(values),
            tuple(self._slots),
            tuple(self._sync_ends),
            len(self._sync_ends),
            tuple([0 if slot in self._seen else None for slot in range(FETCH)]),
            tuple([slot for slot in REGIONS if slot in self._seen]),
            tuple(self._fetches),
            self._num_forwards,
            self._num_before,
            self._num_backwards,
            self._num_optimizer_steps,
            any(code in _COUNTED for code, _ in values),
        )

    def _takes(self, code: int, *, is_last: bool) -> bool:
        if code in edges.OPENS:
            return self._opens(SLOT_OF[code])
        if code - edges.CLOSE in edges.OPENS:
            return self._closes(SLOT_OF[code - edges.CLOSE])
        if code == edges.STEP_BEGIN:
            is_between, self._stack = self._stack == [BETWEEN], [IN_STEP]
            return is_between
        return code == edges.STEP_END and is_last and self._stack == [IN_STEP] and not self._has_batch

    def _opens(self, slot: int) -> bool:
        if slot == FORWARD:
            self._num_forwards += 1
            self._has_batch = False
        self._num_backwards += slot == BACKWARD and slot not in self._stack
        self._num_optimizer_steps += slot == OPTIMIZER and slot not in self._stack
        self._stack.append(slot)
        self._seen.add(INPUT if slot == FETCH else slot)
        return slot not in _LATE

    def _closes(self, slot: int) -> bool:
        if len(self._stack) == 1 or self._stack.pop() != slot:
            return False
        if slot == FETCH and FETCH not in self._stack:
            self._fetches.append(tuple(self._waits))
            self._waits.clear()
            self._has_batch, self._num_before = True, self._num_forwards
        if slot == SYNC and SYNC not in self._stack:
            self._sync_ends.append(len(self._slots))
            return FETCH not in self._stack
        return True
