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
from traceml.report.contract_attempts import DeathInfo
from traceml.report.files import summary_text
from traceml.schema.attempts import Attempt, RankDeath
from traceml.schema.records import HostSample, LiveSlot, MemoryReading, RankEnd
from traceml.schema.struct import from_plain
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


def test_the_headline_is_the_last_attempt_with_the_first_death_of_the_one_before() -> None:
    deaths = (
        RankDeath(1, 20, "backward", 5, "killed by SIGKILL"),
        *(RankDeath(rank, 20, "sync", 6 + rank, "failed with DistBackendError") for rank in range(2, 9)),
    )
    attempts = [Attempt(number, 4, 19, 0, 30 * SECOND, deaths) for number in range(11)]
    report = report_of(store_of(LATE, all_attempts=attempts))
    text = card(report)

    assert (report.run.restarts, report.run.steps) == (11, 80)
    assert [attempt.number for attempt in report.attempts] == list(range(3, 11))
    assert report.attempts[-1].duration_s == 30
    assert report.attempts[-1].deaths[0] == DeathInfo(1, 20, "backward", "killed by SIGKILL")
    assert len(report.attempts[-1].deaths) == 4
    assert (
        "11 restarts: in the attempt before rank 1 died first, in backward of step 20 (killed by SIGKILL)"
        in " ".join(text.split())
    )
    assert max(len(line) for line in text.splitlines()) <= 80


def test_an_attempt_without_a_step_says_so() -> None:
    attempts = [Attempt(0, 4, 0, 0, SECOND, (RankDeath(3, 1, "between_steps", 5, "failed with RuntimeError"),))]
    text = card(report_of(store_of(LATE, all_attempts=attempts)))

    assert "1 restart: in the attempt before rank 3 died first, before its first step" in " ".join(text.split())


def test_a_last_attempt_without_a_step_is_told_apart_from_the_one_that_the_rest_is_of() -> None:
    died = RankDeath(1, 1, "between_steps", 5, "left with exit code 1")
    later, silent = (Attempt(1, 2, 0, 0, SECOND, deaths) for deaths in ((died,), ()))
    told = [" ".join(card(report_of(store_of(LATE, all_attempts=[one]))).split()) for one in (later, silent)]

    assert "1 restart: in the last attempt rank 1 died first, before its first step (left with exit code 1)" in told[0]
    assert "1 restart: the last attempt ended before its first step; the rest is of the one before" in told[1]


def test_the_worst_summary_of_eight_ranks_with_restarts_and_findings_is_small_and_sound() -> None:
    deaths = tuple(RankDeath(rank, 20, "sync", rank, "failed with DistBackendError") for rank in range(8))
    attempts = [Attempt(number, 8, 19, 0, SECOND, deaths, f"node-0/attempt-{number}.db") for number in range(40)]
    world = World(num_ranks=8, phase="backward", delay_ms=20, rank=5, length_noise=0.3)
    report = report_of(store_of(world, 400, all_attempts=attempts))
    text = summary_text(report)

    assert len(text.encode()) < 32 * 1024
    assert from_plain(Report, json.loads(text)) == report


def test_steps_that_not_every_rank_has_are_noted() -> None:
    store = store_of(LATE)
    assert store.ledger_state is not None
    store.ledger_state = replace(store.ledger_state, num_without_partner=1_204)

    assert "1,204 steps are not in the comparison of the ranks: not every rank has them" in (
        report_of(store).coverage.notes
    )
