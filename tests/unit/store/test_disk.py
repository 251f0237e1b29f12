"""Tests the store on full, read-only and failing disks, and after its writer was killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.unit.store.step_streams import is_seamless, period_of, portions, stream
from traceml.store.reader import StoreReader
from traceml.store.writer import StoreFull, StoreWriter

ROOT = Path(__file__).resolve().parents[3]


class Tmpfs:
    """A small file system in memory, which can be made read-only."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def mount(self, options: str) -> None:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.place)], check=True, capture_output=True
        )

    def make_read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self.place)], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Tmpfs]:
    """A tmpfs of 2 MB; skipped where mounting is not allowed."""
    disk = Tmpfs(tmp_path / "small")
    disk.place.mkdir()
    try:
        disk.mount("size=2m")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a tmpfs needs a right that this user does not have")
    yield disk
    subprocess.run(["umount", "-l", str(disk.place)], check=True)


def fill(writer: StoreWriter, *, first: int = 1) -> int:
    """Appends portions of 500 steps until there is no room; the first step that was not stored."""
    for at in range(first, 1_000_000, 500):
        try:
            writer.append(steps=stream(500, first=at), cursors={"1-0.ring": str(at)})
        except StoreFull as error:
            return at if error.slug == "disk-full" and str(writer.path) in str(error) else -1
    raise AssertionError("there was always room")


def started(script: str, *arguments: Path) -> subprocess.Popen[str]:
    """A script of ours in a process of its own."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def in_a_process(script: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script of ours in a process of its own, to its end."""
    with started(script, *arguments) as process:
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_a_full_disk_keeps_all_that_was_appended_before_and_nothing_of_the_rest(small_disk: Tmpfs) -> None:
    writer = StoreWriter(small_disk.place / "run.db")

    missing = fill(writer)

    window = StoreReader(small_disk.place / "run.db").window(0)
    assert missing > 500
    assert is_seamless(window.pieces, first=1, last=missing - 1)
    assert writer.cursors() == {"1-0.ring": str(missing - 500)}


def test_a_writer_goes_on_where_it_was_when_there_is_room_again(small_disk: Tmpfs) -> None:
    ballast = small_disk.place / "ballast"
    writer = StoreWriter(small_disk.place / "run.db", max_bytes=512 << 10)
    ballast.write_bytes(b"x" * (1800 << 10))
    missing = fill(writer)

    ballast.unlink()
    for some in portions(stream(9_000, first=missing), 500):
        writer.append(steps=some)

    assert is_seamless(StoreReader(writer.path).window(0).pieces, first=1, last=missing + 8_999)


def test_a_writer_that_moved_goes_on_without_a_gap(small_disk: Tmpfs, tmp_path: Path) -> None:
    writer = StoreWriter(small_disk.place / "run.db")
    missing = fill(writer)

    writer.move_to(tmp_path / "elsewhere" / "node-0" / "run.db")
    writer.append(steps=stream(5_000, first=missing))
    writer.close()

    moved = tmp_path / "elsewhere" / "node-0" / "run.db"
    pieces = StoreReader(moved).window(0).pieces
    assert is_seamless(pieces, first=1, last=missing + 4_999)
    assert period_of(pieces).total == sum(step.period_ns for step in stream(missing + 4_999))
    assert sorted(file.name for file in moved.parent.iterdir()) == ["run.db"]
    assert StoreReader(small_disk.place / "run.db").window(0).last == missing - 1


def test_a_move_that_fails_leaves_the_writer_where_it_was(small_disk: Tmpfs, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    for some in portions(stream(20_000), 5_000):
        writer.append(steps=some)

    (small_disk.place / "ballast").write_bytes(b"x" * (1500 << 10))

    with pytest.raises(StoreFull):
        writer.move_to(small_disk.place / "run.db")
    writer.append(steps=stream(100, first=20_001))

    assert [file.name for file in small_disk.place.iterdir()] == ["ballast"]
    assert is_seamless(StoreReader(tmp_path / "run.db").window(0).pieces, first=1, last=20_100)


def test_a_read_only_file_system_is_told_when_creating_and_when_going_on(small_disk: Tmpfs) -> None:
    writer = StoreWriter(small_disk.place / "run.db")
    writer.append(steps=stream(100))
    writer.close()
    small_disk.make_read_only()

    with pytest.raises(StoreFull):
        StoreWriter(small_disk.place / "other" / "run.db")
    with pytest.raises(StoreFull):
        StoreWriter(small_disk.place / "run.db").append(steps=stream(100, first=101))


def test_a_closed_database_is_one_plain_file_that_a_read_only_folder_can_hold(small_disk: Tmpfs) -> None:
    writer = StoreWriter(small_disk.place / "run.db")
    writer.append(steps=stream(300))
    writer.close()
    small_disk.make_read_only()

    reader = StoreReader(small_disk.place / "run.db")

    assert [file.name for file in small_disk.place.iterdir()] == ["run.db"]
    assert (reader.window(0).last, reader.notes()) == (300, {})


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.store.step_streams import stream
from traceml.store.writer import StoreWriter

writer = StoreWriter(Path(sys.argv[1]))
for first in range(1, 3_000, 100):
    writer.append(steps=stream(100, first=first))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
def test_all_that_was_appended_is_read_after_the_writer_was_killed(tmp_path: Path) -> None:
    died = in_a_process(KILLED, tmp_path / "run.db")

    window = StoreReader(tmp_path / "run.db").window(0)

    assert died.returncode == -signal.SIGKILL
    assert (tmp_path / "run.db-wal").stat().st_size > 0
    assert is_seamless(window.pieces, first=1, last=3_000)


@pytest.mark.process
@pytest.mark.parametrize("left", [("run.db", "run.db-wal", "run.db-shm"), ("run.db", "run.db-wal")])
def test_a_killed_writers_database_is_read_from_a_read_only_folder_too(
    small_disk: Tmpfs, tmp_path: Path, left: tuple[str, ...]
) -> None:
    in_a_process(KILLED, tmp_path / "run.db")
    for name in left:
        shutil.copy(tmp_path / name, small_disk.place / name)
    small_disk.make_read_only()

    reader = StoreReader(small_disk.place / "run.db")

    assert is_seamless(reader.window(0).pieces, first=1, last=3_000)
    assert reader.notes() == {}
    reader.close()


@pytest.mark.process
def test_a_log_that_cannot_be_read_in_place_nor_copied_is_left_out_and_told(
    small_disk: Tmpfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_process(KILLED, tmp_path / "run.db")
    for name in ("run.db", "run.db-wal"):
        shutil.copy(tmp_path / name, small_disk.place / name)
    small_disk.make_read_only()
    monkeypatch.setattr("tempfile.tempdir", str(small_disk.place))

    reader = StoreReader(small_disk.place / "run.db")

    assert "The last moments of this run are missing" in reader.notes()["log-unreadable"]


WRITING = """
import sys
from pathlib import Path
from tests.unit.store.step_streams import portions, stream
from traceml.store.writer import StoreWriter

writer = StoreWriter(Path(sys.argv[1]), max_bytes=1 << 20)
print("begun", flush=True)
for some in portions(stream(40_000), 200):
    writer.append(steps=some)
writer.close()
"""


@pytest.mark.process
def test_a_reader_beside_a_writing_process_always_sees_a_whole_run(tmp_path: Path) -> None:
    with started(WRITING, tmp_path / "run.db") as writing:
        assert writing.stdout is not None
        writing.stdout.readline()
        reader = StoreReader(tmp_path / "run.db")
        seen = []
        while writing.poll() is None:
            window = reader.window(0)
            assert window.last is None or is_seamless(window.pieces, first=1, last=window.last)
            seen.append(window.last or 0)

    assert writing.returncode == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.db"]


@pytest.mark.process
def test_another_writer_goes_on_after_the_first_was_killed(tmp_path: Path) -> None:
    in_a_process(KILLED, tmp_path / "run.db")

    writer = StoreWriter(tmp_path / "run.db")
    writer.append(steps=stream(3_000, first=2_001))
    writer.close()

    assert is_seamless(StoreReader(tmp_path / "run.db").window(0).pieces, first=1, last=5_000)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.db"]


LIMITED = """
import resource, sys
from pathlib import Path
from tests.unit.store.step_streams import is_seamless, stream
from tests.unit.store.test_disk import fill
from traceml.store.reader import StoreReader
from traceml.store.writer import StoreFull, StoreWriter

resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
writer = StoreWriter(Path(sys.argv[1]))
missing = fill(writer)
assert missing > 500, missing
assert is_seamless(StoreReader(writer.path).window(0).pieces, first=1, last=missing - 1)
try:
    writer.move_to(Path(sys.argv[2]))
except StoreFull:
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.move_to(Path(sys.argv[2]))
writer.append(steps=stream(5_000, first=missing))
writer.close()
assert is_seamless(StoreReader(Path(sys.argv[2])).window(0).pieces, first=1, last=missing + 4_999)
print("right")
"""


@pytest.mark.process
def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    ended = in_a_process(LIMITED, tmp_path / "run.db", tmp_path / "moved" / "run.db")

    assert (ended.stdout.strip(), ended.stderr) == ("right", "")


def test_no_room_for_the_last_checkpoint_loses_nothing_at_close(small_disk: Tmpfs) -> None:
    writer = StoreWriter(small_disk.place / "run.db")
    missing = fill(writer)

    writer.close()
    writer.close()

    assert is_seamless(StoreReader(small_disk.place / "run.db").window(0).pieces, first=1, last=missing - 1)
