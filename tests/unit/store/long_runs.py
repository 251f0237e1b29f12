"""Drives runs of any length into a store and measures it: tests take short ones, a benchmark ten million steps."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Iterator, NamedTuple

from tests.unit.store.step_streams import portions, stream
from traceml.schema.phases import PHASES
from traceml.schema.records import StepRecord
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path


class Measured(NamedTuple):
    """A run that was written: the most bytes file and log took together after an append, and those at the end."""

    path: Path
    max_bytes_seen: int
    num_bytes: int


def size_of(folder: Path) -> int:
    """The bytes of the database and its log."""
    return sum(file.stat().st_size for file in folder.iterdir() if not file.name.endswith("-shm"))


def write_run(
    folder: Path, *, num_ranks: int, num_steps: int, max_bytes: int, portion: int, has_regions: bool = False
) -> Measured:
    """Writes a run of `num_steps` a rank, `portion` steps of every rank an append."""
    return write_steps(
        folder,
        [stream(num_steps, rank=rank, has_regions=has_regions) for rank in range(num_ranks)],
        max_bytes=max_bytes,
        portion=portion,
    )


def write_steps(folder: Path, runs: list[Iterator[StepRecord]], *, max_bytes: int, portion: int) -> Measured:
    """Writes the steps of some ranks, `portion` of each an append."""
    writer = StoreWriter(folder / "run.db", max_bytes=max_bytes)
    most = 0
    for some in zip(*(portions(run, portion) for run in runs)):
        writer.append(steps=[step for own in some for step in own])
        most = max(most, size_of(folder))
    writer.close()
    return Measured(folder / "run.db", most, size_of(folder))


def wildest(num_steps: int, *, rank: int = 0) -> Iterator[StepRecord]:
    """Steps whose every phase, and whose 16 regions, take anything from a microsecond to 20 minutes."""
    rng = random.Random(rank)
    for step in range(1, num_steps + 1):
        phase_ns = tuple(int(1_000 * 10 ** rng.uniform(0, 9)) for _ in PHASES)
        region_ns = tuple((number, int(1_000 * 10 ** rng.uniform(0, 9))) for number in range(16))
        period_ns = sum(phase_ns) + sum(ns for _, ns in region_ns)
        yield StepRecord(rank, step, step * 10**13, period_ns, phase_ns, region_ns, 10**6, 1, 1, 32, 4096, step)
