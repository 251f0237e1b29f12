"""Finds where the warm-up ends: the first step that is as fast as the later half of the run, and stays so."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final, Optional, Sequence, Union

from traceml.schema.distribution import Distribution
from traceml.schema.phases import COMPILE, PHASE_INDEX
from traceml.schema.records import Block, StepRecord

Piece = Union[StepRecord, Block]

_OWN_TIMES: Final = 1.2  # the first steady step takes at most this many times the later half's median
_STAY_WITHIN: Final = 0.2  # and the steps from it on have a median within this share of it
_NUM_STAYING: Final = 8
_AT_MOST: Final = 4  # warm-up is at most a fourth of the run
_COMPILE: Final = PHASE_INDEX[COMPILE]


@dataclass(frozen=True)
class Warmup:
    """Where the warm-up ends. `is_cut` says that it may reach into steps of which only sums are kept."""

    first_steady_step: int  # 0: there is no warm-up
    is_cut: bool = False

    def holds(self, record: StepRecord) -> bool:
        """Whether a step is warm-up: before the first steady one, or with compilation."""
        return record.step < self.first_steady_step or bool(record.phase_ns[_COMPILE])


def find_warmup(pieces: Sequence[Piece]) -> Warmup:
    """Finds the warm-up at the head of a run.

    Steady begins with the first step whose own period is at most 1.2 times the median of the later half of the steps
    known, and the median of the 8 periods from it on within 20 % of that median. At most a quarter of the run is
    warm-up; steps that are merely faster than the later half are none. Nor is a longer part of the run that is slower
    but even: something was slow there, and it is judged; its own first steps can be warm-up.

    Args:
        pieces: All steps from the run's first one on, in order.

    Returns:
        The warm-up. Looks only at the raw steps before the first block.
    """
    usual_ns = _later_half_median(pieces)
    head = _raw_head(pieces)
    num_all = sum(map(_num_all, pieces))
    limit = min(num_all // _AT_MOST, len(head))
    if usual_ns is None or not limit:
        return Warmup(0)
    periods = [record.period_ns for record in head]
    for is_right in (_settles, _is_not_slower):
        for index in range(min(limit + 1, len(head))):
            if is_right(periods[index : index + _NUM_STAYING], usual_ns):
                return Warmup(head[index].step if index else 0)
    is_cut = limit == len(head) < num_all // _AT_MOST
    even = None if is_cut else _evens_out(periods, limit)
    if even is not None:
        return Warmup(head[even].step if even else 0)
    return Warmup(head[limit - 1].step + 1, is_cut=is_cut)


def _evens_out(periods: Sequence[int], limit: int) -> Optional[int]:
    """The first of the steps until `limit` that is like those before the limit; None where none is."""
    usual_ns = median(periods[limit // 2 : limit + _NUM_STAYING])
    if any(not _is_like(periods[at : at + _NUM_STAYING], usual_ns) for at in (limit // 2, limit)):
        return None
    return next((at for at in range(limit + 1) if _settles(periods[at : at + _NUM_STAYING], usual_ns)), None)


def _settles(periods: Sequence[int], usual_ns: float) -> bool:
    return periods[0] <= _OWN_TIMES * usual_ns and _is_like(periods, usual_ns)


def _is_like(periods: Sequence[int], usual_ns: float) -> bool:
    return abs(median(periods) - usual_ns) <= _STAY_WITHIN * usual_ns


def _is_not_slower(periods: Sequence[int], usual_ns: float) -> bool:
    # Tried without: a run that becomes slower on the way lost its fast first quarter as "warm-up".
    return periods[0] <= _OWN_TIMES * usual_ns and median(periods) <= (1 + _STAY_WITHIN) * usual_ns


def _raw_head(pieces: Sequence[Piece]) -> list[StepRecord]:
    """The steps before the first block, without failed ones."""
    head = []
    for piece in pieces:
        if not isinstance(piece, StepRecord):
            break
        if piece.failed_in is None:
            head.append(piece)
    return head


def _later_half_median(pieces: Sequence[Piece]) -> float | None:
    """The median period of the later half of the steps that did not fail, None without any."""
    num_steps = sum(_num_measured(piece) for piece in pieces)
    wanted, taken = (num_steps + 1) // 2, 0
    raw: list[int] = []
    coarse = Distribution()
    for piece in reversed(pieces):
        if taken >= wanted:
            break
        taken += _num_measured(piece)
        if isinstance(piece, Block):
            coarse.merge(piece.period)
        elif piece.failed_in is None:
            raw.append(piece.period_ns)
    if not coarse.count:
        return median(raw) if raw else None
    coarse.merge(Distribution.of(raw))
    return coarse.quantile(0.5)


def _num_all(piece: Piece) -> int:
    return 1 if isinstance(piece, StepRecord) else piece.num_steps + piece.num_failed + piece.num_halted


def _num_measured(piece: Piece) -> int:
    return piece.num_steps if isinstance(piece, Block) else int(piece.failed_in is None)
