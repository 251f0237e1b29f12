"""Makes long streams of steps, cheap and the same each time, and says what a window of them must tell."""

from __future__ import annotations

import random
from typing import Iterable, Iterator, Optional, Sequence, Union

from traceml.schema.distribution import Distribution
from traceml.schema.phases import (
    BACKWARD,
    BETWEEN_STEPS,
    CHECKPOINT,
    FORWARD,
    GC,
    IN_STEP,
    INPUT,
    OPTIMIZER,
    PHASE_INDEX,
    PHASES,
)
from traceml.schema.records import Block, StepRecord

Piece = Union[Block, StepRecord]
_USUAL_NS = {
    INPUT: 3_000_000,
    FORWARD: 9_000_000,
    BACKWARD: 18_000_000,
    OPTIMIZER: 1_500_000,
    IN_STEP: 400_000,
    BETWEEN_STEPS: 150_000,
}
_NUM_SHAPES = 4096  # steps are taken from so many different ones


def _shapes(seed: int) -> list[tuple[Optional[int], ...]]:
    rng = random.Random(seed)
    found = []
    for number in range(_NUM_SHAPES):
        phase_ns: list[Optional[int]] = [None] * len(PHASES)
        for name, usual_ns in _USUAL_NS.items():
            phase_ns[PHASE_INDEX[name]] = int(usual_ns * rng.lognormvariate(0, 0.2))
        if number % 20 == 0:
            phase_ns[PHASE_INDEX[GC]] = rng.randrange(100_000, 900_000)
        if number % 1000 == 999:
            phase_ns[PHASE_INDEX[CHECKPOINT]] = rng.randrange(400_000_000, 900_000_000)
        found.append(tuple(phase_ns))
    return found


_SHAPES = _shapes(seed=7)
_PERIODS = [sum(ns or 0 for ns in shape) for shape in _SHAPES]


def stream(num_steps: int, *, rank: int = 0, first: int = 1, has_regions: bool = False) -> Iterator[StepRecord]:
    """Steps of a usual training: six phases, now and then garbage collection, rarely a checkpoint."""
    end_ns = 10**14
    for step in range(first, first + num_steps):
        shape = (step * 7 + rank * 13) % _NUM_SHAPES
        region_ns = ((0, 2_000 + shape), (1, 900_000)) if has_regions else ()
        period_ns = _PERIODS[shape] + sum(ns for _, ns in region_ns)
        end_ns = 10**14 + step * 40_000_000
        yield StepRecord(rank, step, end_ns, period_ns, _SHAPES[shape], region_ns, 0, 1, 1, 32, None, step, None)


def portions(steps: Iterable[StepRecord], num_steps: int) -> Iterator[list[StepRecord]]:
    """The steps in portions of a size, as a collector brings them."""
    portion: list[StepRecord] = []
    for step in steps:
        portion.append(step)
        if len(portion) == num_steps:
            yield portion
            portion = []
    if portion:
        yield portion


def covered(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """The first and the last step of each piece."""
    return [(p.step, p.step) if isinstance(p, StepRecord) else (p.first_step, p.last_step) for p in pieces]


def is_seamless(pieces: Sequence[Piece], *, first: int, last: int) -> bool:
    """Whether each step of first..last is in exactly one piece, and no other step is in any."""
    at = first
    for begin, end in covered(pieces):
        if begin != at:
            return False
        at = end + 1
    return at == last + 1


def period_of(pieces: Sequence[Piece]) -> Distribution:
    """The periods of all measured steps of some pieces."""
    whole = Distribution()
    for piece in pieces:
        if isinstance(piece, Block):
            whole.merge(piece.period)
        elif piece.failed_in is None:
            whole.add(piece.period_ns)
    return whole


def phase_of(pieces: Sequence[Piece], phase: str) -> Distribution:
    """A phase of all measured steps of some pieces."""
    whole = Distribution()
    for piece in pieces:
        if isinstance(piece, Block):
            whole.merge(piece.phases.get(phase, Distribution()))
        elif piece.failed_in is None:
            spent_ns = piece.phase_ns[PHASE_INDEX[phase]]
            if spent_ns is not None:
                whole.add(spent_ns)
    return whole


def exact_quantile(values: Sequence[int], share: float) -> int:
    """The value at a share of the sorted ones, by the same counting as Distribution.quantile."""
    ordered = sorted(values)
    return ordered[int(share * (len(ordered) - 1))]
