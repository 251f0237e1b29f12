"""Tests that a file that is not ours, too new or damaged is refused in one line, never with a traceback of SQLite."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Callable

import pytest

from tests.unit.store.step_streams import portions, stream
from tests.unit.store.test_records_and_notes import state
from traceml.errors import RunError
from traceml.schema.phases import FORWARD
from traceml.schema.records import Event, HostSample
from traceml.store.reader import StoreReader
from traceml.store.tables import VERSION
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run.db"
    writer = StoreWriter(path, max_bytes=2 << 20)
    for some in portions(stream(30_000, has_regions=True), 5_000):
        writer.append(
            steps=some,
            states=[state(0)],
            events=[Event("spike", 0, s.step, s.end_ns, text="x") for s in some[:50]],
            host=[HostSample(s.end_ns, cpu_percent=5.0, throttled=True) for s in some[:50]],
        )
    writer.close()
    return path


def ask_everything(path: Path) -> None:
    """Asks a reader all it can be asked."""
    reader = StoreReader(path)
    reader.window(0)
    reader.window(0, first=9_000, last=9_010, coarse=False)
    reader.series(FORWARD, num_points=50)
    reader.series("region:augment")
    for question in (reader.states, reader.segments, reader.events, reader.host, reader.live, reader.notes, reader.end):
        question()
    reader.close()


def refused(attempt: Callable[[Path], object], path: Path) -> str:
    """The slug of the one-line refusal."""
    with pytest.raises(RunError) as caught:
        attempt(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value.slug


@pytest.mark.parametrize("attempt", [StoreReader, StoreWriter])
def test_another_programs_database_is_refused(tmp_path: Path, attempt: Callable[[Path], object]) -> None:
    with closing(sqlite3.connect(tmp_path / "run.db")) as db:
        db.execute("CREATE TABLE steps (id)")

    assert refused(attempt, tmp_path / "run.db") == "foreign-database"


@pytest.mark.parametrize("attempt", [StoreReader, StoreWriter])
def test_a_newer_database_is_refused(tmp_path: Path, whole: Path, attempt: Callable[[Path], object]) -> None:
    shutil.copy(whole, tmp_path / "run.db")
    with closing(sqlite3.connect(tmp_path / "run.db")) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")

    assert refused(attempt, tmp_path / "run.db") == "database-too-new"


@pytest.mark.parametrize("attempt", [StoreReader, StoreWriter])
@pytest.mark.parametrize("content", [b"", b"hello", random.Random(1).randbytes(9_000)])
def test_a_file_that_is_no_database_is_refused(
    tmp_path: Path, content: bytes, attempt: Callable[[Path], object]
) -> None:
    (tmp_path / "run.db").write_bytes(content)

    assert refused(attempt, tmp_path / "run.db") == "damaged-database"


def test_a_missing_database_and_a_folder_in_its_place_are_told(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()

    assert refused(StoreReader, tmp_path / "run.db") == "no-database"
    assert refused(StoreReader, tmp_path / "folder.db") == "no-database"


@pytest.mark.parametrize("kept", [0.001, 0.01, 0.3, 0.9])
def test_a_truncated_database_is_refused(tmp_path: Path, whole: Path, kept: float) -> None:
    content = whole.read_bytes()
    (tmp_path / "run.db").write_bytes(content[: int(len(content) * kept)])

    assert refused(ask_everything, tmp_path / "run.db") == "damaged-database"


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bytes_are_answered_or_refused_but_never_crash(tmp_path: Path, whole: Path, seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(whole.read_bytes())
    for _ in range(rng.choice([1, 20, 2_000])):
        content[rng.randrange(100 if seed % 3 else 16, len(content))] = rng.randrange(256)
    (tmp_path / "run.db").write_bytes(content)

    for attempt in (ask_everything, lambda path: StoreWriter(path).append(steps=stream(70, first=30_001))):
        try:
            attempt(tmp_path / "run.db")
        except RunError as error:
            assert error.slug in {"damaged-database", "foreign-database", "database-too-new"}  # noqa: PT017  # either is right


@pytest.mark.parametrize("column", ["period_ns", "forward_ns"])
def test_a_step_of_less_than_no_time_is_not_gone_on_with(tmp_path: Path, column: str) -> None:
    path = tmp_path / "run.db"
    StoreWriter(path).append(steps=stream(70))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE steps SET {column} = -5 WHERE key = 70")

    assert refused(StoreWriter, path) == "damaged-database"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE extents SET last_step = 1099511627775",
        "UPDATE extents SET first_step = 'one'",
        "UPDATE held SET low = 1 << 39",
        "DELETE FROM held WHERE level = 2",
        "UPDATE steps SET forward_ns = 'long'",
        "UPDATE steps SET regions = x'ff'",
        "UPDATE blocks SET body = x'00ff00ff'",
        "UPDATE blocks SET body = 7",
        "UPDATE states SET body = '{'",
        "UPDATE states SET body = '[' || hex(zeroblob(9))",
        "UPDATE events SET step = 'x'",
        "UPDATE host SET cpu_percent = 'x'",
        "UPDATE host SET weight = 'x'",
        "DROP TABLE blocks",
        "UPDATE steps SET period_ns = -5",
        "UPDATE steps SET forward_ns = -5",
        "UPDATE steps SET period_ns = 1 << 62 | 1",
        "UPDATE blocks SET num_steps = -64",
        "UPDATE blocks SET num_steps = num_steps + 1",
        "UPDATE blocks SET body = x'00060500000a0001' WHERE num_steps = 64",
        "UPDATE blocks SET body = substr(body, 1, 2) || x'7f' || substr(body, 4)",
        "UPDATE events SET duration_ns = -5",
        "UPDATE events SET count = 0",
        "UPDATE host SET cpu_percent = -5.0",
        "UPDATE host SET cpu_percent = 9e999",
        "UPDATE host SET weight = 0",
    ],
)
def test_a_value_that_cannot_be_ours_is_refused(tmp_path: Path, whole: Path, change: str) -> None:
    shutil.copy(whole, tmp_path / "run.db")
    with closing(sqlite3.connect(tmp_path / "run.db")) as db:
        db.execute(change)
        db.commit()

    assert refused(ask_everything, tmp_path / "run.db") == "damaged-database"
