"""Collects several ranks from rings that are written here: the ledger's units reach the database, restarts included."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ring_folders import ring_folder
from tests.unit.collect.test_collector import Told, collect, manifest_of
from traceml.collect.keeping import Keeping
from traceml.report.build import build_report
from traceml.schema.records import Manifest, RankEnd, RankIdentity, Watching
from traceml.schema.syncs import merged
from traceml.store.reader import StoreReader
from traceml.views.text.card import card
from traceml.wire import edges
from traceml.wire.ring import PUBLISHED, RingWriter

LATE_MS = 20.0


class SyntheticRank:
    """A rank of a world whose step is: fetch, forward, backward with the wait in it, optimizer."""

    def __init__(self, tmp_path: Path, rank: int, *, world_size: int, attempt: int = 0, start_s: float = 0.0) -> None:
        self.rank, self.now = rank, start_s or time.perf_counter()
        start_ns = round(self.now * 1e9) - 1_000_000_000
        self.ring = RingWriter(
            ring_folder(tmp_path) / f"{100 + rank}-{attempt}.ring",
            process_start_ns=start_ns,
            anchor_ns=time.perf_counter_ns(),
            anchor_wall_ns=time.time_ns(),
            num_edges=1 << 15,
        )
        self.ring.send(RankIdentity(rank, rank, world_size, os.getpid(), start_ns, attempt=attempt))
        self.ring.send(Watching(("input", "forward", "backward", "sync", "optimizer", "eval", "checkpoint", "gc")))
        self.num_edges = 0
        self.value(edges.SERIAL, 1 << edges.SERIAL_BITS | 1)

    def value(self, code: int, value: float) -> None:
        self.ring.codes[self.num_edges] = code
        self.ring.stamps[self.num_edges] = value
        self.num_edges += 1

    def edge(self, code: int, *, after_ms: float = 0.0) -> None:
        self.now += after_ms / 1e3
        self.value(code, self.now)

    def arrive(self, input_ms: float) -> None:
        """Up to where the wait for the others begins."""
        self.edge(edges.INPUT, after_ms=0.2)
        self.edge(edges.INPUT + edges.CLOSE, after_ms=input_ms)
        self.edge(edges.STEP_BEGIN, after_ms=0.1)
        self.edge(edges.FORWARD)
        self.edge(edges.FORWARD + edges.CLOSE, after_ms=4)
        self.edge(edges.BACKWARD)
        self.edge(edges.SYNC, after_ms=5)

    def leave(self, at_s: float) -> None:
        """From the end of the wait to that of the step."""
        self.now = at_s
        for code, after_ms in (
            (edges.SYNC + edges.CLOSE, 0.0),
            (edges.BACKWARD + edges.CLOSE, 0.0),
            (edges.OPTIMIZER, 0.1),
            (edges.OPTIMIZER + edges.CLOSE, 2.0),
            (edges.STEP_END, 0.1),
        ):
            self.edge(code, after_ms=after_ms)
        self.ring.header[PUBLISHED] = self.num_edges

    def goodbye(self, *, exception: str = "") -> None:
        how = "exception" if exception else "end"
        self.ring.send(RankEnd(self.rank, how, exception, round(self.now * 1e9)))
        self.ring.close()


def train(ranks: list[SyntheticRank], num_steps: int, *, late: int) -> None:
    """Steps in which all wait for one rank."""
    for _ in range(num_steps):
        for rank in ranks:
            rank.arrive(LATE_MS if rank.rank == late else 1.0)
        gone_s = max(rank.now for rank in ranks) + 5e-3
        for rank in ranks:
            rank.leave(gone_s)


def world(tmp_path: Path, num_ranks: int, *, attempt: int = 0) -> list[SyntheticRank]:
    start_s = time.perf_counter()
    return [
        SyntheticRank(tmp_path, rank, world_size=num_ranks, attempt=attempt, start_s=start_s)
        for rank in range(num_ranks)
    ]


def reader_of(tmp_path: Path) -> StoreReader:
    return StoreReader(tmp_path / "run" / "node-0" / "run.db")


def test_the_units_of_four_ranks_are_stored_and_name_the_late_one(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    ranks = world(tmp_path, 4)
    train(ranks, 60, late=2)
    for rank in ranks:
        rank.goodbye()
    collect(tmp_path, manifest, Told())
    reader = reader_of(tmp_path)
    report = build_report(reader, manifest, now_wall=time.time(), now_ns=time.perf_counter_ns(), is_running=False)

    whole = merged(reader.units())
    assert whole is not None
    assert (whole.num_units, whole.ranks) == (59, (0, 1, 2, 3))
    assert (report.verdict.diagnosis, report.step_time.findings[0].ranks) == ("STRAGGLER", (2,))
    assert report.step_time.findings[0].phases == ("input",)
    assert report.step_time.sync_pct is not None


def test_small_portions_give_the_same_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceml.collect.tail.PORTION_EDGES", 37)
    manifest = manifest_of(tmp_path)
    ranks = world(tmp_path, 3)
    train(ranks, 40, late=0)
    for rank in ranks:
        rank.goodbye()
    collect(tmp_path, manifest, Told())

    assert [unit.last_step for unit in reader_of(tmp_path).units()] == list(range(2, 41))


def test_a_second_collector_goes_on_with_the_units_where_the_first_one_died(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    ranks = world(tmp_path, 3)
    train(ranks, 30, late=1)
    _collect_once_and_die(tmp_path, manifest)
    train(ranks, 30, late=1)
    for rank in ranks:
        rank.goodbye()
    collect(tmp_path, manifest, Told())
    reader = reader_of(tmp_path)

    assert [unit.last_step for unit in reader.units()] == list(range(2, 61))
    state = reader.ledger()
    assert state is not None
    assert (state.num_synced, state.num_unaligned, state.num_without_partner) == (60, 0, 0)


def test_who_died_first_is_told_first_with_the_phase_that_its_exception_left(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    ranks = world(tmp_path, 3)
    train(ranks, 20, late=1)
    for code in (edges.INPUT, edges.RAISED, edges.CLOSE_NO_BATCH, edges.RUN_END):
        ranks[2].edge(code, after_ms=1.0)
    ranks[2].ring.header[PUBLISHED] = ranks[2].num_edges
    ranks[2].goodbye(exception="OSError")
    for rank in ranks[:2]:
        rank.arrive(1.0)
        for code in (edges.RAISED, edges.SYNC + edges.CLOSE, edges.RAISED, edges.BACKWARD + edges.CLOSE):
            rank.edge(code, after_ms=1.0)
        rank.edge(edges.STEP_FAILED)
        rank.ring.header[PUBLISHED] = rank.num_edges
        rank.goodbye(exception="RuntimeError")
    collect(tmp_path, manifest, Told())
    report = build_report(
        reader_of(tmp_path), manifest, now_wall=time.time(), now_ns=time.perf_counter_ns(), is_running=False
    )

    deaths = sorted(
        (event.kind, event.rank, event.step, event.text) for event in report.events if "death" in event.kind
    )
    assert deaths[2] == ("first death", 2, 21, "rank 2 failed with OSError in input")
    assert [death[:3] for death in deaths[:2]] == [("death", 0, 21), ("death", 1, 21)]
    assert (report.run.exception, report.run.first_death) == ("OSError", "rank 2 failed with OSError")
    assert "rank 2 failed with OSError after 21 steps" in " ".join(card(report).split())


def test_a_restart_is_an_attempt_of_its_own_with_the_first_death_of_the_one_before(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    first = world(tmp_path, 3)
    train(first, 20, late=1)
    first[1].arrive(1.0)
    first[1].edge(edges.RAISED)
    first[1].edge(edges.STEP_FAILED)
    first[1].ring.header[PUBLISHED] = first[1].num_edges
    first[1].now -= 0.5  # it died before the others did
    first[1].goodbye(exception="ValueError")
    for rank in (first[0], first[2]):
        rank.goodbye(exception="DistBackendError")
    second = world(tmp_path, 2, attempt=1)
    train(second, 50, late=0)
    for rank in second:
        rank.goodbye()
    collect(tmp_path, manifest, Told())
    reader = reader_of(tmp_path)
    report = build_report(reader, manifest, now_wall=time.time(), now_ns=time.perf_counter_ns(), is_running=False)

    assert (report.run.steps, report.run.world_size, report.run.restarts) == (50, 2, 1)
    assert [unit.ranks for unit in reader.units()] == [(0, 1)] * 49
    assert report.step_time.findings[0].ranks == (0,)
    (before,) = report.attempts
    assert (before.number, before.world_size, before.steps) == (0, 3, 21)
    assert [(death.rank, death.step, death.phase) for death in before.deaths[:1]] == [(1, 21, "sync")]
    assert before.deaths[0].how == "failed with ValueError"
    assert "rank 1 died first, in waiting for ranks of step 21" in " ".join(card(report).split())
    old = StoreReader(tmp_path / "run" / before.file)
    assert [unit.last_step for unit in old.units()] == list(range(2, 21))


def test_a_restart_that_is_seen_as_it_happens_gives_the_same(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    first = world(tmp_path, 2)
    train(first, 30, late=1)
    _collect_once_and_die(tmp_path, manifest)
    for rank in first:
        rank.goodbye(exception="RuntimeError")
    second = world(tmp_path, 2, attempt=1)
    train(second, 25, late=0)
    _collect_once_and_die(tmp_path, manifest)
    train(second, 25, late=0)
    for rank in second:
        rank.goodbye()
    collect(tmp_path, manifest, Told())
    reader = reader_of(tmp_path)

    assert [unit.last_step for unit in reader.units()] == list(range(2, 51))
    assert [(attempt.number, attempt.num_steps) for attempt in reader.attempts()] == [(0, 30)]
    assert {state.identity.attempt for state in reader.states()} == {1}


def test_a_restart_that_came_to_no_step_is_counted_beside_the_attempt_that_trained(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    ranks = world(tmp_path, 2)
    train(ranks, 30, late=1)
    for rank in ranks:
        rank.goodbye(exception="RuntimeError")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    (ring_folder(tmp_path) / f"arrived-1-0-2-{process.pid}").touch()
    collect(tmp_path, manifest, Told())
    report = build_report(
        reader_of(tmp_path), manifest, now_wall=time.time(), now_ns=time.perf_counter_ns(), is_running=False
    )

    assert (report.run.restarts, report.run.steps) == (1, 30)
    assert [(attempt.number, attempt.steps) for attempt in report.attempts] == [(1, 0)]
    assert report.attempts[0].deaths[0].how == "gone without a word"


def _collect_once_and_die(tmp_path: Path, manifest: Manifest) -> None:
    """A collector that stores what is there and is gone without a word."""
    from traceml.collect.callbacks import Callbacks
    from traceml.collect.collector import Collector  # as it is used once
    from traceml.collect.launcher import Launcher

    keeping = Keeping(tmp_path / "run", manifest, max_bytes=64 << 20, noted=print)
    collector = Collector(
        manifest, keeping, Launcher(None), sampling=None, callbacks=Callbacks(lambda _: None, lambda _: None)
    )
    collector._turn()  # a part of its life
    keeping._store.close()
