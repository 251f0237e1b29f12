"""Tests one run's collecting in this process: rings in, database and answers out."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Sequence

import pytest

from tests.ring_folders import ring_folder
from traceml.collect.callbacks import Callbacks
from traceml.collect.collector import Collector
from traceml.collect.devices import Nvml
from traceml.collect.keeping import Keeping
from traceml.collect.launcher import Launcher
from traceml.collect.recover import lives, orphans, recover
from traceml.collect.sampling import Sampling
from traceml.errors import RunError
from traceml.schema.records import Manifest, RankEnd, RankIdentity, RankState, RunEnd
from traceml.store.reader import StoreReader
from traceml.wire import edges
from traceml.wire.manifest import write_manifest
from traceml.wire.ring import ANSWERED, PUBLISHED, WANTED, RingWriter

NOBODY = 2**22 - 3  # above every pid this machine gives
STEP = (edges.STEP_BEGIN, edges.FORWARD, edges.FORWARD + edges.CLOSE, edges.STEP_END)


@dataclass
class Told:
    """What the collector asked of its composition root."""

    answered: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Rounds(Sampling):
    """Remembers of which processes each round of samples was."""

    def __init__(self) -> None:
        super().__init__(Nvml())
        self.pids: list[list[int]] = []

    def take(self, at_ns: int, ranks: Sequence[tuple[int, RankState]]) -> dict[str, Any]:
        """As every round."""
        self.pids.append([pid for pid, _ in ranks])
        return super().take(at_ns, ranks)


class Rank:
    """A ring of this process, or of one that is gone."""

    def __init__(self, folder: Path, name: str = "1-0.ring") -> None:
        now = time.perf_counter_ns()
        self.ring = RingWriter(
            folder / name, process_start_ns=now, anchor_ns=now, anchor_wall_ns=time.time_ns(), num_edges=1 << 14
        )
        self.ring.send(RankIdentity(0, 0, 1, os.getpid(), now))
        self.num_edges = 0

    def steps(self, num_steps: int) -> None:
        """Steps of no length."""
        for code in STEP * num_steps:
            self.ring.codes[self.num_edges] = code
            self.ring.stamps[self.num_edges] = time.perf_counter()
            self.num_edges += 1
        self.ring.header[PUBLISHED] = self.num_edges

    def goodbye(self) -> None:
        """The recorder's last word."""
        self.ring.send(RankEnd(0, "end", "", time.perf_counter_ns()))
        self.ring.close()


def manifest_of(tmp_path: Path, *, launcher_pid: Optional[int] = None) -> Manifest:
    ring_folder(tmp_path)
    for name in ("run",):
        (tmp_path / name).mkdir(mode=0o700)
    manifest = Manifest(
        schema_version=1,
        name="run",
        run_id="1",
        created_at=time.time(),
        created_ns=time.perf_counter_ns(),
        ring_dir=str(ring_folder(tmp_path)),
        script="train.py",
        arguments=(),
        cwd="/",
        started_by="init",
        hostname="here",
        traceml_version="0",
        python_version="3",
        launcher_pid=launcher_pid,
    )
    write_manifest(tmp_path / "run", manifest)
    (ring_folder(tmp_path) / "run").write_text(str(tmp_path / "run"))
    return manifest


def collect(
    tmp_path: Path, manifest: Manifest, told: Told, fd: Optional[int] = None, sampling: Optional[Sampling] = None
) -> RunEnd:
    keeping = Keeping(tmp_path / "run", manifest, max_bytes=64 << 20, noted=told.notes.append)
    callbacks = Callbacks(told.answered.append, told.notes.append)
    return Collector(manifest, keeping, Launcher(fd), sampling=sampling, callbacks=callbacks).run()


def stored_steps(tmp_path: Path) -> int:
    reader = StoreReader(tmp_path / "run" / "node-0" / "run.db")
    (state,) = reader.states()
    reader.close()
    return state.last_step or 0


def test_a_rank_that_said_goodbye_is_stored_to_its_last_step(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    rank = Rank(ring_folder(tmp_path))
    rank.steps(30)
    rank.goodbye()
    end = collect(tmp_path, manifest, Told())

    assert (end.status, end.ended_by, end.exit_code) == ("completed", "end", None)
    assert stored_steps(tmp_path) == 30


def test_steps_that_come_in_many_portions_are_all_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceml.collect.tail.PORTION_EDGES", 10)
    manifest = manifest_of(tmp_path)
    rank = Rank(ring_folder(tmp_path))
    rank.steps(30)
    rank.goodbye()
    collect(tmp_path, manifest, Told())

    assert stored_steps(tmp_path) == 30


def test_a_question_is_answered_while_the_rank_waits(tmp_path: Path) -> None:
    manifest, told = manifest_of(tmp_path, launcher_pid=os.getpid()), Told()
    rank = Rank(ring_folder(tmp_path))
    rank.steps(5)
    rank.ring.header[WANTED] = 3
    thread = threading.Thread(target=collect, args=(tmp_path, manifest, told))
    thread.start()
    deadline = time.monotonic() + 20
    while rank.ring.header[ANSWERED] < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    rank.goodbye()
    thread.join()

    assert (rank.ring.header[ANSWERED], told.answered) == (3, [os.getpid()])


def test_a_training_that_is_over_before_the_next_round_of_samples_is_sampled_once(tmp_path: Path) -> None:
    manifest, rounds = manifest_of(tmp_path, launcher_pid=os.getpid()), Rounds()
    thread = threading.Thread(target=collect, args=(tmp_path, manifest, Told()), kwargs={"sampling": rounds})
    thread.start()
    deadline = time.monotonic() + 20
    while not rounds.pids and time.monotonic() < deadline:
        time.sleep(0.01)
    rank = Rank(ring_folder(tmp_path))
    rank.steps(9)
    rank.goodbye()
    thread.join()

    assert rounds.pids[:2] == [[], [os.getpid()]]
    assert [sample.rank for sample in StoreReader(tmp_path / "run" / "node-0" / "run.db").processes()][:1] == [0]


def test_a_foreign_file_among_the_rings_is_told_and_passed_over(tmp_path: Path) -> None:
    manifest, told = manifest_of(tmp_path), Told()
    (ring_folder(tmp_path) / "0-0.ring").write_bytes(bytes(9000))
    rank = Rank(ring_folder(tmp_path))
    rank.steps(9)
    rank.goodbye()
    collect(tmp_path, manifest, told)

    assert stored_steps(tmp_path) == 9
    assert len(told.notes) == 1
    assert "0-0.ring" in told.notes[0]


def test_a_dead_run_is_brought_home_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest_of(tmp_path, launcher_pid=NOBODY)
    monkeypatch.setattr(os, "getpid", lambda: NOBODY)
    Rank(ring_folder(tmp_path)).steps(12)
    monkeypatch.undo()
    first = recover(tmp_path / "run")
    second = recover(tmp_path / "run")

    assert (first, second) == (True, False)
    assert stored_steps(tmp_path) == 12
    assert not list(tmp_path.glob("traceml-*/*"))


def test_a_living_run_is_left_alone(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, launcher_pid=NOBODY)
    Rank(ring_folder(tmp_path)).steps(12)

    assert lives(manifest)
    assert not recover(tmp_path / "run")
    assert list(orphans([ring_folder(tmp_path).parent])) == []


def test_orphans_are_found_by_their_rings(tmp_path: Path) -> None:
    manifest_of(tmp_path, launcher_pid=NOBODY)

    assert list(orphans([ring_folder(tmp_path).parent, tmp_path / "missing"])) == [tmp_path / "run"]


def test_recovering_what_is_no_run_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        recover(tmp_path)

    assert caught.value.slug == "no-run"
