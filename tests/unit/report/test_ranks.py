"""Reports of several ranks: side by side, what they lose to one another, and what could not be decided."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.analysis.rank_worlds import World, simulate
from tests.unit.report.store_fakes import MANIFEST, SECOND, FakeStore, state_of
from traceml.analysis.ledger import Ledger
from traceml.report.build import build_report
from traceml.report.contract import Report
from traceml.report.files import summary_text
from traceml.schema.records import HostSample, LiveSlot, MemoryReading, RankEnd
from traceml.views.text.card import card

LATE = World(phase="input", delay_ms=20, rank=2)


def store_of(world: World, num_steps: int = 80, **more: Any) -> FakeStore:
    steps, ledger = simulate(world, num_steps), Ledger(world.num_ranks)
    for rank, own in enumerate(steps):
        ledger.feed(rank, own, regions={})
    return FakeStore(
        steps=[step for own in steps for step in own],
        ranks=[state_of(rank, world_size=world.num_ranks) for rank in range(world.num_ranks)],
        all_units=ledger.take(),
        ledger_state=ledger.state,
        all_host=[HostSample(at_ns=at * SECOND, num_cores=2.0) for at in range(8)],
        **more,
    )


def report_of(store: FakeStore, **more: Any) -> Report:
    return build_report(store, MANIFEST, now_wall=1_800_000_100.0, now_ns=30 * SECOND, is_running=False, **more)


def test_the_median_and_the_worst_rank_stand_beside_each_phase() -> None:
    ranks = report_of(store_of(LATE)).step_time.ranks

    assert ranks.worst == 2
    assert ranks.median != 2
    assert ranks.phases["input"].worst == 2
    assert ranks.phases["input"].median_ms == pytest.approx(1, abs=0.3)
    assert ranks.phases["input"].worst_ms == pytest.approx(21, abs=1)
    assert "checkpoint" not in ranks.phases


def test_each_row_holds_own_work_gain_and_how_often_it_was_last() -> None:
    ranks = report_of(store_of(LATE)).step_time.ranks
    first, *others = ranks.by_rank

    assert (first.rank, first.last_pct) == (2, 100.0)
    assert first.gain_ms == pytest.approx(19, abs=1)
    assert first.own_ms == pytest.approx(34, abs=2)
    assert [row.gain_ms for row in others] == [0, 0, 0]
    assert ranks.sync is not None
    assert (ranks.sync.units, ranks.sync.steps, ranks.sync.undecided) == (79, 79, "")
    assert ranks.sync.transfer_ms == pytest.approx(5.5, abs=1)


def test_memory_has_a_median_and_a_worst_rank() -> None:
    memory = [MemoryReading(rank, 0, 1, "cuda", 100 * (rank + 1)) for rank in range(4)]
    report = report_of(store_of(LATE, all_memory=memory))

    assert report.step_memory.ranks is not None
    assert (report.step_memory.ranks.median_bytes, report.step_memory.ranks.worst) == (200, 3)
    assert report.step_time.ranks.by_rank[0].memory_bytes == 300


def test_coverage_says_until_when_each_rank_was_heard_and_how_it_left() -> None:
    slots = [LiveSlot(rank, 81, "input", (10 + rank) * SECOND, 20 * SECOND, alive=False) for rank in range(4)]
    store = store_of(LATE, slots=slots)
    store.ranks[1] = replace(store.ranks[1], end=RankEnd(1, "exception", "ValueError"))
    ranks = report_of(store).coverage.ranks

    assert [(rank.rank, rank.until_s, rank.end) for rank in ranks[:2]] == [(0, 10.0, None), (1, 11.0, "exception")]


def test_what_is_not_decided_is_noted() -> None:
    store = store_of(LATE)
    store.ranks[0] = replace(store.ranks[0], unwatched={"sync": "pipeline parallel: its stages do different work"})
    report = report_of(store)

    assert report.step_time.findings[0].diagnosis != "STRAGGLER"
    assert report.step_time.ranks.sync is not None
    assert report.step_time.ranks.sync.undecided.startswith("pipeline parallel")
    assert any(note.startswith("who waits for whom is not decided: pipeline") for note in report.coverage.notes)


def test_one_rank_has_no_such_rows() -> None:
    store = FakeStore(steps=simulate(replace(LATE, num_ranks=2), 40)[0])
    report = report_of(store)

    assert report.step_time.ranks.sync is None
    assert report.step_time.ranks.phases == {}
    assert report.step_memory.ranks is None


def test_a_range_of_steps_is_judged_by_its_own_units() -> None:
    report = report_of(store_of(LATE, 120), window=(61, 90))

    assert report.step_time.ranks.sync is not None
    assert report.step_time.ranks.sync.units == 30
    assert report.verdict.diagnosis == "STRAGGLER"


def test_the_summary_of_eight_ranks_stays_under_32_kb() -> None:
    world = World(num_ranks=8, phase="backward", delay_ms=20, rank=5)
    text = summary_text(report_of(store_of(world, 400)))

    assert len(text.encode()) < 32 * 1024
    found = json.loads(text)
    assert len(found["step_time"]["ranks"]["by_rank"]) == 8
    assert not any("by_rank" in note for note in found["coverage"]["notes"])


def test_the_card_says_how_the_ranks_compare_on_80_columns() -> None:
    text = card(report_of(store_of(LATE)))

    assert "of each step all wait for rank 2, in input" in " ".join(text.split())
    assert "rank 2 has the most work" in " ".join(text.split())
    assert ", on rank 2 21" in " ".join(text.split())
    assert max(len(line) for line in text.splitlines()) <= 80
