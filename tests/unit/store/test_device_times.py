"""Tests that the device's times come back as they went in, of every level, and that older databases still open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.builders import NS_PER_MS, numbered, step_ms, timed
from tests.unit.store.step_streams import portions, stream
from traceml.errors import UsageError
from traceml.schema.phases import PHASES
from traceml.schema.records import Block, StepRecord
from traceml.store import packing
from traceml.store.packing import DamagedContent
from traceml.store.reader import StoreReader
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

HOST = step_ms(input=1, forward=2, backward=3, optimizer=1, in_step=9)


def kept(path: Path, steps: list[StepRecord]) -> StoreReader:
    writer = StoreWriter(path)
    for some in portions(steps, 1_000):
        writer.append(steps=some)
    writer.close()
    return StoreReader(path)


def steps_of(number: int) -> list[StepRecord]:
    """Every tenth has no device times, every fourth no upper bound of its run-ahead."""
    steps = []
    for i in range(1, number + 1):
        high = None if i % 4 == 0 else 3.0 + i % 7
        own = timed(HOST, run_ahead=(1.0, high), input=0, forward=5, backward=9 + i % 3, regions={2: 0.5})
        steps.append(HOST if i % 10 == 0 else own)
    return list(numbered(steps))


def test_a_step_comes_back_with_its_device_times(tmp_path: Path) -> None:
    steps = list(
        numbered([timed(HOST, run_ahead=(0.0, None), forward=5, regions={0: 1, 15: 3}), HOST, timed(HOST, input=2)])
    )

    assert kept(tmp_path / "run.db", steps).window(0).pieces == tuple(steps)


@pytest.mark.parametrize("number", [3_000, 9_000])
def test_every_level_keeps_what_the_steps_say(tmp_path: Path, number: int) -> None:
    steps = steps_of(number)

    pieces = kept(tmp_path / "run.db", steps).window(0).pieces

    blocks = [piece for piece in pieces if isinstance(piece, Block)]
    assert blocks
    for block in blocks:
        own = [s.device for s in steps[block.first_step - 1 : block.last_step] if s.device]
        assert block.device is not None
        assert block.device.period.count == len(own)
        assert block.device.period.total == sum(times.period_ns for times in own)
        backward = block.device.phases["backward"]
        assert backward.total == sum(times.phase_ns[PHASES.index("backward")] or 0 for times in own)
        assert block.device.phases["region:2"].total == len(own) * NS_PER_MS // 2
        highs = [times.run_ahead_ns[1] for times in own if times.run_ahead_ns[1] is not None]
        assert block.device.run_ahead_high.count == len(highs)
        assert block.device.run_ahead_low.count == len(own)


def test_a_small_database_keeps_the_sums_of_coarser_levels(tmp_path: Path) -> None:
    writer, steps = StoreWriter(tmp_path / "run.db", max_bytes=400_000), steps_of(30_000)
    for some in portions(steps, 2_000):
        writer.append(steps=some)
    writer.close()

    pieces = StoreReader(tmp_path / "run.db").window(0).pieces

    assert any(isinstance(piece, Block) and piece.level > 1 for piece in pieces)
    blocks = [piece.device.period.total for piece in pieces if isinstance(piece, Block) and piece.device]
    raw = [piece.device.period_ns for piece in pieces if isinstance(piece, StepRecord) and piece.device]
    assert sum(blocks) + sum(raw) == sum(step.device.period_ns for step in steps if step.device)


def test_steps_without_a_device_have_none_in_blocks_too(tmp_path: Path) -> None:
    pieces = kept(tmp_path / "run.db", list(stream(3_000))).window(0).pieces

    assert all(piece.device is None for piece in pieces)


@pytest.mark.parametrize("number", [200, 20_000])
def test_a_series_of_the_devices_clock_leaves_out_steps_without_it(tmp_path: Path, number: int) -> None:
    steps = steps_of(number)
    reader = kept(tmp_path / "run.db", steps)

    own = [step.device for step in steps if step.device]
    for metric, values in (
        ("device:period", [times.period_ns for times in own]),
        ("device:forward", [times.phase_ns[PHASES.index("forward")] or 0 for times in own]),
        ("run_ahead", [times.run_ahead_ns[1] for times in own if times.run_ahead_ns[1] is not None]),
    ):
        points = reader.series(metric, num_points=50)[0]
        assert sum(point.count for point in points) == len(values)
        assert sum(point.mean * point.count for point in points) == pytest.approx(sum(values))
        assert max(point.maximum for point in points) == max(values)
        assert min(point.minimum for point in points) == min(values)


def test_a_series_of_the_devices_clock_has_no_points_without_one(tmp_path: Path) -> None:
    reader = kept(tmp_path / "run.db", list(stream(100)))

    assert reader.series("device:period") == {0: []}
    assert reader.series("run_ahead") == {0: []}


@pytest.mark.parametrize("metric", ["device:", "device:rss", "device:device:period", "device:run_ahead"])
def test_only_the_steps_metrics_have_a_devices_clock(tmp_path: Path, metric: str) -> None:
    reader = kept(tmp_path / "run.db", list(stream(10)))

    with pytest.raises(UsageError):
        reader.series(metric)


def as_version_1(path: Path) -> None:
    """Makes the file what the first version wrote."""
    with closing(sqlite3.connect(path)) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(steps)") if row[1] not in ("device", "sync")]
        db.execute("ALTER TABLE steps RENAME TO newer")
        db.execute(f"CREATE TABLE steps (key INTEGER PRIMARY KEY, {', '.join(names[1:])})")
        db.execute(f"INSERT INTO steps SELECT {', '.join(names)} FROM newer")
        for table in ("newer", "units", "unit_blocks", "unit_regions", "attempts"):
            db.execute(f"DROP TABLE {table}")
        db.execute("ALTER TABLE processes DROP COLUMN run_delay_ns")
        db.execute("PRAGMA user_version=1")
        db.commit()


def test_a_database_of_the_first_version_still_opens(tmp_path: Path) -> None:
    steps = list(stream(2_500))
    before = kept(tmp_path / "run.db", steps).window(0)
    as_version_1(tmp_path / "run.db")

    reader = StoreReader(tmp_path / "run.db")

    assert reader.window(0) == before
    assert reader.series("forward", num_points=9_999)[0]
    assert reader.series("device:period") == {0: []}


def test_a_writer_goes_on_in_a_database_of_the_first_version(tmp_path: Path) -> None:
    steps = steps_of(300)
    plain = [step._replace(device=None) for step in steps[:200]]
    kept(tmp_path / "run.db", plain)
    as_version_1(tmp_path / "run.db")

    pieces = kept(tmp_path / "run.db", steps).window(0).pieces

    assert pieces == (*plain, *steps[200:])


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_device_times_that_are_cut_off_are_damage(cut: int) -> None:
    device = timed(HOST, forward=5).device
    assert device is not None
    packed = packing.pack_device(device)

    with pytest.raises(DamagedContent):
        packing.unpack_device(packed[:-cut])


def test_device_times_are_small(tmp_path: Path) -> None:
    device = timed(HOST, run_ahead=(1, 9), input=30, forward=50, backward=90, optimizer=9, h2d=4).device
    assert device is not None

    assert len(packing.pack_device(device)) < 64
