"""Groups the steady steps into at most 64 chunks of about the same number of steps, in order."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Callable, Final, Iterator, Sequence, Union

from traceml.analysis.facts import Chunk
from traceml.schema.distribution import Distribution
from traceml.schema.phases import PHASES
from traceml.schema.records import Block, StepRecord

Piece = Union[StepRecord, Block]
NameRegion = Callable[[int], str]

MAX_CHUNKS: Final = 64


def chunks_of(pieces: Sequence[Piece], name_region: NameRegion, *, max_chunks: int = MAX_CHUNKS) -> tuple[Chunk, ...]:
    """Cuts steady pieces into chunks.

    Args:
        pieces: Steady steps and blocks, in step order; a block is never divided.
        name_region: The phase name of a region's number.
        max_chunks: How many chunks at most.

    Returns:
        At most `max_chunks` chunks. With fewer steps, one a step.
    """
    return tuple(_chunk(group, name_region) for group in _groups(pieces, max_chunks))


def with_walls(chunks: Sequence[Chunk], pieces: Sequence[Piece]) -> tuple[Chunk, ...]:
    """Chunks of the device's clock with the median period on the host's.

    Args:
        chunks: In step order.
        pieces: What they were made of, as the host's clock has it.
    """
    found, at = [], 0
    for chunk in chunks:
        records: list[StepRecord] = []
        blocks: list[Block] = []
        while at < len(pieces) and _last(pieces[at]) <= chunk.last_step:
            piece = pieces[at]
            if isinstance(piece, Block):
                blocks.append(piece)
            else:
                records.append(piece)
            at += 1
        found.append(replace(chunk, wall_median_ns=_median_period(records, blocks) if records or blocks else None))
    return tuple(found)


def _last(piece: Piece) -> int:
    return piece.last_step if isinstance(piece, Block) else piece.step


def _groups(pieces: Sequence[Piece], max_chunks: int) -> Iterator[list[Piece]]:
    num_steps = sum(_num_steps(piece) for piece in pieces)
    group: list[Piece] = []
    passed = number = 0
    for piece in pieces:
        if not _num_steps(piece):
            continue
        here = passed * max_chunks // max(num_steps, max_chunks)
        if group and here != number:
            yield group
            group = []
        number = here
        group.append(piece)
        passed += _num_steps(piece)
    if group:
        yield group


def _num_steps(piece: Piece) -> int:
    return piece.num_steps if isinstance(piece, Block) else 1


def _chunk(group: Sequence[Piece], name_region: NameRegion) -> Chunk:
    records = [piece for piece in group if isinstance(piece, StepRecord)]
    blocks = [piece for piece in group if isinstance(piece, Block)]
    totals = {phase: float(ns) for phase, ns in _phase_totals(records, blocks, name_region).items()}
    num_steps = sum(_num_steps(piece) for piece in group)
    period_ns = sum(r.period_ns for r in records) + sum(b.period.total for b in blocks)
    first, last = group[0], group[-1]
    return Chunk(
        first_step=first.first_step if isinstance(first, Block) else first.step,
        last_step=last.last_step if isinstance(last, Block) else last.step,
        num_steps=num_steps,
        period_median_ns=_median_period(records, blocks),
        period_mean_ns=period_ns / num_steps,
        phase_mean_ns={phase: ns / num_steps for phase, ns in totals.items()},
        epoch_start_mean_ns=(sum(r.epoch_start_ns for r in records) + sum(b.epoch_start.total for b in blocks))
        / num_steps,
    )


def _phase_totals(records: Sequence[StepRecord], blocks: Sequence[Block], name_region: NameRegion) -> dict[str, int]:
    """The ns of every phase that has an edge in the chunk, fixed ones first."""
    totals: dict[str, int] = {}
    for phase, column in zip(PHASES, zip(*(record.phase_ns for record in records))):
        seen = [ns for ns in column if ns is not None]
        if seen:
            totals[phase] = sum(seen)
    for record in records:
        for number, ns in record.region_ns:
            name = name_region(number)
            totals[name] = totals.get(name, 0) + ns
    for block in blocks:
        for phase, spent in block.phases.items():
            if spent.count:
                totals[phase] = totals.get(phase, 0) + spent.total
    return totals


def _median_period(records: Sequence[StepRecord], blocks: Sequence[Block]) -> float:
    if not blocks:
        return float(median(record.period_ns for record in records))
    periods = Distribution.of(record.period_ns for record in records)
    for block in blocks:
        periods.merge(block.period)
    return periods.quantile(0.5) or 0.0
