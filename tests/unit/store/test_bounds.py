"""Tests that the database stays under its cap, whatever is written, and still speaks of every step."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.long_runs import size_of, wildest, write_run, write_steps
from tests.unit.store.step_streams import is_seamless, period_of, portions, stream
from traceml.schema.records import Block, Event, HostSample, MemoryReading, ProcessSample
from traceml.store.reader import StoreReader
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20


@pytest.mark.parametrize(
    ("num_ranks", "num_steps", "max_bytes", "portion"),
    [
        (1, 250_000, 2 * MB, 10_000),
        (1, 12_000, 1 * MB, 37),
        (2, 60_000, 1 * MB, 20_000),
        (8, 20_000, 2 * MB, 1_000),
        (64, 1_500, 12 * MB, 300),
    ],
)
def test_file_and_log_stay_under_the_cap_and_every_step_is_covered_once(
    tmp_path: Path, num_ranks: int, num_steps: int, max_bytes: int, portion: int
) -> None:
    run = write_run(tmp_path, num_ranks=num_ranks, num_steps=num_steps, max_bytes=max_bytes, portion=portion)

    reader = StoreReader(run.path)
    assert run.max_bytes_seen <= max_bytes
    for rank in range(num_ranks):
        pieces = reader.window(rank).pieces
        assert is_seamless(pieces, first=1, last=num_steps)
        assert is_seamless(reader.window(rank, coarse=False).pieces, first=1, last=num_steps)
        assert period_of(pieces).total == sum(step.period_ns for step in stream(num_steps, rank=rank))


@pytest.mark.long
def test_even_the_wildest_steps_of_many_ranks_stay_under_the_cap(tmp_path: Path) -> None:
    runs = [wildest(4_500, rank=rank) for rank in range(8)]

    run = write_steps(tmp_path, runs, max_bytes=3 * MB, portion=500)

    reader = StoreReader(run.path)
    assert run.max_bytes_seen <= 3 * MB
    for rank in range(8):
        pieces = reader.window(rank).pieces
        assert is_seamless(pieces, first=1, last=4_500)
        assert period_of(pieces).total == sum(step.period_ns for step in wildest(4_500, rank=rank))


def test_a_writer_that_had_to_fold_early_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    for some in portions(wildest(9_000), 900):
        writer = StoreWriter(path, max_bytes=MB // 4)
        writer.append(steps=some)
        writer.close()

    pieces = StoreReader(path).window(0).pieces
    assert is_seamless(pieces, first=1, last=9_000)
    assert period_of(pieces).total == sum(step.period_ns for step in wildest(9_000))


@pytest.mark.parametrize(("num_ranks", "num_steps", "portion"), [(1, 16_384, 1_000), (10, 10_000, 100)])
def test_a_realistic_step_takes_at_most_150_bytes_on_disk(
    tmp_path: Path, num_ranks: int, num_steps: int, portion: int
) -> None:
    run = write_run(tmp_path, num_ranks=num_ranks, num_steps=num_steps, max_bytes=64 * MB, portion=portion)

    with closing(sqlite3.connect(run.path)) as db:
        (num_raw,) = db.execute("SELECT count(*) FROM steps").fetchone()
    assert num_raw == num_ranks * num_steps
    assert run.num_bytes / num_raw <= 150


def test_one_rank_keeps_its_first_2048_and_its_last_16384_steps_raw(tmp_path: Path) -> None:
    run = write_run(tmp_path, num_ranks=1, num_steps=60_000, max_bytes=64 * MB, portion=10_000)

    blocks = [piece for piece in StoreReader(run.path).window(0, coarse=False).pieces if isinstance(piece, Block)]

    assert blocks[0].first_step == 2_049
    assert 60_000 - blocks[-1].last_step >= 16_384


def test_samples_and_events_are_bounded_too(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db", max_bytes=2 * MB)
    most = 0
    for start in range(0, 24_000, 2_000):
        moments = range(start, start + 2_000)
        writer.append(
            steps=stream(2_000, first=start + 1),
            memory=[MemoryReading(0, at, at, "cuda", 2**33 + at, 2**34, 2**34, 2**36) for at in moments],
            processes=[ProcessSample(at % 4, at, 2**31 + at, 99.5, 12, at, at) for at in moments],
            host=[HostSample(at, 8.0, 55.5, 3.0, throttled=False, memory_bytes=at) for at in moments],
            events=[Event("spike", 0, at, at, 10**6, text="every 50th step " * 99) for at in moments],
        )
        most = max(most, size_of(tmp_path))

    assert most <= 2 * MB


def test_what_is_written_is_the_users_own(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "runs" / "node-0" / "run.db")
    writer.append(steps=stream(100))
    files = [tmp_path / "runs" / "node-0" / name for name in ("run.db", "run.db-wal", "run.db-shm")]

    folders = [tmp_path / "runs", tmp_path / "runs" / "node-0"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 2
