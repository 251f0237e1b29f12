"""Holds the report to its promises: shares, ends, null and 0, events, blocks, size."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report.store_fakes import COMPLETED, MANIFEST, MS, SECOND, FakeStore, state_of, step_ms
from traceml.report.build import build_report
from traceml.report.files import summary_text
from traceml.report.schema import FILE as SCHEMA_FILE
from traceml.report.schema import json_schema, schema_text
from traceml.report.shares import apportion
from traceml.schema import phases
from traceml.schema.records import (
    HALTED,
    Event,
    Fault,
    HostSample,
    LiveSlot,
    MemoryReading,
    Segment,
    StepRecord,
    Unrecorded,
)

if TYPE_CHECKING:
    from traceml.report.contract import Report


def report_of(store: FakeStore, **more: Any) -> Report:
    return build_report(store, MANIFEST, **{"now_wall": 1_800_000_030.0, "now_ns": 30 * SECOND, **more})


def usual(num_steps: int = 100, *, rank: int = 0) -> list[StepRecord]:
    return [
        step_ms(n, rank=rank, num_samples=64, input=35.6, forward=21.1, backward=14.6, optimizer=3.2, in_step=0.3)
        for n in range(1, num_steps + 1)
    ]


def test_a_run_that_mostly_waits_for_data_says_so_in_verdict_and_section() -> None:
    report = report_of(FakeStore(usual()))

    assert report.verdict.diagnosis == report.step_time.diagnosis == "INPUT_BOUND"
    assert report.verdict.section == "step_time"
    assert report.verdict.summary == report.step_time.findings[0].summary


def test_the_percentages_of_step_time_and_of_phases_add_up_to_exactly_100() -> None:
    report = report_of(FakeStore(usual()))

    keys = [key for key in vars(report.step_time) if key.endswith("_pct")]
    assert round(sum(getattr(report.step_time, key) or 0 for key in keys), 6) == 100
    assert round(sum(row.pct or 0 for row in report.step_time.phases.values()), 6) == 100


@given(st.lists(st.one_of(st.none(), st.integers(0, 10**12)), min_size=1, max_size=28))
def test_shares_of_any_weights_add_up_to_100_and_are_within_a_tenth(weights: list[Any]) -> None:
    named = {str(at): weight for at, weight in enumerate(weights)}
    found = apportion(named)

    total = sum(weight or 0 for weight in weights)
    assert [v is None for v in found.values()] == [w is None or not total for w in weights]
    assert not total or round(sum(v or 0 for v in found.values()), 6) == 100
    assert all(abs((found[k] or 0) - 100 * (w or 0) / total) < 0.1 + 1e-9 for k, w in named.items() if total)


def test_a_phase_that_was_never_seen_is_null_and_one_that_took_nothing_is_zero() -> None:
    report = report_of(FakeStore(usual()))

    assert report.step_time.h2d_pct is None
    assert report.step_time.phases["h2d"].mean_ms is None
    assert report.step_time.eval_pct == 0
    assert report.step_time.phases["eval"].mean_ms == 0
    assert "h2d" in report.coverage.unseen
    assert "eval" not in report.coverage.unseen


def test_regions_stand_among_the_phases_and_in_other() -> None:
    steps = [replace_region(step_ms(n, forward=10, in_step=10), number=3, ns=10 * MS) for n in range(1, 41)]
    store = FakeStore(steps, ranks=[replace(state_of(), regions={3: "augment"})])

    report = report_of(store)

    assert report.step_time.phases["region:augment"].pct == 33.3
    assert report.step_time.other_pct == pytest.approx(66.7, abs=0.11)


def replace_region(record: StepRecord, *, number: int, ns: int) -> StepRecord:
    return record._replace(region_ns=((number, ns),), period_ns=record.period_ns + ns)


def test_without_a_step_all_shares_are_null_and_the_schema_still_holds() -> None:
    report = report_of(FakeStore([], ranks=[]))

    assert report.verdict.diagnosis == "INSUFFICIENT_DATA"
    assert report.step_time.dataloader_pct is None
    assert report.step_time.other_pct is None
    assert report.run.steps == 0
    jsonschema.validate(json.loads(summary_text(report)), json_schema())


def test_a_run_without_an_end_is_running_while_its_collector_lives_and_unknown_after() -> None:
    slot = LiveSlot(rank=0, step=101, phase="input", since_ns=29 * SECOND, read_ns=30 * SECOND, alive=True)
    store = FakeStore(usual(), ended=None, slots=[slot])

    assert report_of(store).run.status == "running"
    assert report_of(store).run.live == {"rank": 0, "phase": "input", "since_s": 1.0, "step": 101}
    assert report_of(store, is_running=False).run.status == "unknown"
    assert report_of(store, is_running=False).run.live is None


def test_a_run_that_failed_before_its_first_step_says_so_in_place_of_asking_for_trace_step() -> None:
    end = replace(COMPLETED, status="failed", ended_by="exception", exit_code=1, exception="ModuleNotFoundError")

    verdict = report_of(FakeStore([], ended=end)).verdict

    assert verdict.summary == "The run failed with ModuleNotFoundError before its first step."
    assert "trace_step" not in verdict.next


def test_a_running_run_tells_the_age_of_its_newest_data_and_does_not_count_on_without_any() -> None:
    slot = LiveSlot(rank=0, step=101, phase="input", since_ns=29 * SECOND, read_ns=30 * SECOND, alive=True)
    store = FakeStore(usual(), ended=None, slots=[slot])

    fresh, stale = report_of(store, now_ns=31 * SECOND).run, report_of(store, now_ns=44 * SECOND).run

    assert (fresh.data_age_s, stale.data_age_s) == (1.0, 14.0)
    assert fresh.live is not None
    assert stale.live is not None
    assert (fresh.live["since_s"], stale.live["since_s"]) == (2.0, 1.0)
    assert report_of(store, is_running=False).run.data_age_s is None


def test_samples_of_the_host_are_new_data_too() -> None:
    store = FakeStore([], ranks=[], ended=None, all_host=[HostSample(28 * SECOND)])

    assert report_of(store, now_ns=30 * SECOND).run.data_age_s == 2.0


def test_a_run_with_an_end_is_not_running_even_while_its_collector_still_lives() -> None:
    end = replace(COMPLETED, status="killed", ended_by="signal SIGKILL", exit_code=137)

    run = report_of(FakeStore(usual(), ended=end), is_running=True).run

    assert (run.status, run.ended_by, run.exit_code) == ("killed", "signal SIGKILL", 137)


def test_the_duration_reaches_from_the_first_process_start_to_the_end_of_the_last_tail() -> None:
    nothing = tuple(None if p in phases.ABSENT_WHEN_UNSEEN else 0 for p in phases.PHASES)
    segments = [
        Segment(0, "startup", 1 * SECOND, 2 * SECOND, nothing),
        Segment(0, "tail", 11 * SECOND, 3 * SECOND, nothing),
    ]

    run = report_of(FakeStore(usual(), all_segments=segments)).run

    assert (run.startup_s, run.tail_s, run.duration_s) == (2.0, 3.0, 13.0)


def test_throughput_leaves_eval_and_checkpoint_out_and_stands_beside_the_wall() -> None:
    steps = [step_ms(n, num_samples=10, forward=50, eval=30, checkpoint=20) for n in range(1, 101)]

    rate = report_of(FakeStore(steps)).throughput

    assert rate.samples_per_s == 200  # 1,000 samples in 100 x 50 ms
    assert rate.steps_per_s == 20
    assert rate.wall_samples_per_s == 50  # the run took 20 s


def test_samples_of_all_ranks_are_summed() -> None:
    ranks = [state_of(0, world_size=2), state_of(1, world_size=2)]
    steps = [step_ms(n, rank=r, num_samples=10, forward=50) for r in (0, 1) for n in range(1, 101)]

    assert report_of(FakeStore(steps, ranks=ranks)).throughput.samples_per_s == 400


def test_the_shares_are_the_median_ranks_and_the_worst_rank_comes_first() -> None:
    ranks = [state_of(r, world_size=3) for r in range(3)]
    steps = [step_ms(n, rank=r, forward=10 + 10 * r, sync=30 - 10 * r) for r in range(3) for n in range(1, 101)]

    report = report_of(FakeStore(steps, ranks=ranks))

    assert (report.step_time.ranks.median, report.step_time.ranks.worst) == (1, 2)
    assert report.step_time.forward_pct == 50
    assert [row.rank for row in report.step_time.ranks.by_rank] == [2, 0, 1]


def test_equal_events_are_folded_into_one_with_their_count_and_median_time() -> None:
    events = [Event("evaluation", 0, n, n, duration_ns=ms * MS) for n, ms in ((10, 6), (20, 7), (30, 900))]

    (event,) = report_of(FakeStore(usual(), all_events=events)).events

    assert (event.kind, event.step, event.count, event.ms) == ("evaluation", 10, 3, 7.0)


def test_more_kinds_of_events_than_fit_leave_a_note() -> None:
    events = [Event(f"kind {n}", 0, n, n, duration_ns=n * MS) for n in range(1, 151)]

    report = report_of(FakeStore(usual(), all_events=events))

    assert len(report.events) == 100
    assert report.events[-1].kind == "kind 150"
    assert any("50 kinds" in note for note in report.coverage.notes)


def test_what_was_lost_and_our_own_faults_are_said() -> None:
    state = replace(
        state_of(world_size=2),
        num_lost_edges=1204,
        num_lost_messages=3,
        faults=(Fault("h2d", "KeyError", 7, is_off=True),),
    )

    cover = report_of(FakeStore(usual(), ranks=[state], all_notes={"disk": "the disk was full"})).coverage

    assert cover.ranks[0].lost_frames == 1207
    assert "rank 0: 1,204 edges, 3 messages were lost before they could be read" in cover.notes
    assert "nothing was heard of rank 1 of 2" in cover.notes
    assert "the disk was full" in cover.notes
    assert (cover.faults[0].hook, cover.faults[0].count, cover.faults[0].off) == ("h2d", 7, True)


def test_a_range_of_steps_speaks_of_that_range_alone() -> None:
    steps = [step_ms(n, input=90, forward=10) if n > 50 else step_ms(n, forward=100) for n in range(1, 101)]

    report = report_of(FakeStore(steps), window=(51, 100))

    assert (report.run.first_step, report.run.last_step, report.run.steps) == (51, 100, 50)
    assert report.step_time.dataloader_pct == 90
    assert report.throughput.wall_samples_per_s is None


def test_blocks_are_at_most_64_and_leave_phases_under_a_thousandth_out() -> None:
    steps = [step_ms(n, forward=99.95, optimizer=0.05) for n in range(1, 1001)]

    blocks = report_of(FakeStore(steps)).step_time.blocks

    assert len(blocks) == 64
    assert sum(block.steps for block in blocks) == 1000
    assert all(set(block.mean_ms) == {"forward"} for block in blocks)


def test_memory_is_that_of_the_rank_that_holds_most_and_has_no_diagnosis_yet() -> None:
    readings = [MemoryReading(r, n, n, "cuda", 100 + r, peak_bytes=200 * (r + 1)) for r in (0, 1) for n in range(5)]

    memory = report_of(FakeStore(usual(), all_memory=readings)).step_memory

    assert memory.diagnosis is None
    assert memory.allocated_bytes is not None
    assert memory.allocated_bytes.max == 101
    assert memory.peak_bytes is not None
    assert memory.peak_bytes.max == 400


def test_compilations_are_counted_over_the_ranks_that_watch_the_compiler_and_null_without_one() -> None:
    watching = [replace(state_of(r), watched=("compile",), num_compilations=3, num_recompilations=2) for r in (0, 1)]

    run = report_of(FakeStore(usual(), ranks=[*watching, replace(state_of(2), num_compilations=9)])).run

    assert (run.compilations, run.recompilations) == (6, 4)
    assert report_of(FakeStore(usual())).run.recompilations is None


def full_store() -> FakeStore:
    """Eight ranks, sixteen regions with the longest names, every phase, every kind of event, long notes."""
    regions = {n: f"{n:02d}" + "Ω" * 62 for n in range(16)}
    states = [
        replace(
            state_of(r, world_size=8),
            regions=regions,
            num_lost_edges=123_456,
            faults=tuple(Fault(f"hook{n}", "ValueError: " + "x" * 300, 9, is_off=True) for n in range(8)),
        )
        for r in range(8)
    ]
    steps = []
    for rank in range(8):
        for n in range(1, 201):
            # compile was watched and took nothing: a step with compilation would be warm-up
            times = {p: p != "compile" and 1.2345 + i + rank + n / 77 for i, p in enumerate(phases.PHASES)}
            record = step_ms(n, rank=rank, num_samples=64, **times)
            own = tuple((number, 7_654_321 + number) for number in regions)
            total = record.period_ns + sum(ns for _, ns in own)
            steps.append(record._replace(region_ns=own, period_ns=total, epoch_start_ns=MS))
    events = [Event("slow step", n % 8, n, n, 123_456_789, text=f"backward {n} " + "y" * 40) for n in range(400)]
    notes = {str(n): f"note {n} " + "z" * 300 for n in range(20)}
    return FakeStore(steps, ranks=states, all_events=events, all_notes=notes)


def test_eight_ranks_with_everything_full_stay_under_32_kb_and_every_cut_is_said() -> None:
    report = report_of(full_store())

    text = summary_text(report)
    assert len(text.encode()) < 32 * 1024
    assert any(note.startswith("blocks:") for note in report.coverage.notes)
    assert any(note.startswith("events:") for note in report.coverage.notes)
    assert report.step_time.phases.keys() >= set(phases.PHASES)
    jsonschema.validate(json.loads(text), json_schema())


def test_eight_ranks_of_a_usual_run_are_not_cut() -> None:
    steps = [record for rank in range(8) for record in usual(100, rank=rank)]
    events = [Event("evaluation", 0, n, n, 6 * SECOND) for n in range(50)]
    report = report_of(FakeStore(steps, ranks=[state_of(r, world_size=8) for r in range(8)], all_events=events))

    assert not any("small" in note for note in report.coverage.notes)
    assert len(report.step_time.blocks) == 64
    assert len(report.step_time.ranks.by_rank) == 8


def test_the_schema_in_the_package_is_the_one_the_contract_derives() -> None:
    shipped = (files("traceml.report") / SCHEMA_FILE).read_text(encoding="utf-8")

    assert shipped == schema_text()


def test_a_built_report_holds_the_schema_and_a_wrong_one_does_not() -> None:
    plain = json.loads(summary_text(report_of(FakeStore(usual()))))

    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.validate(plain, json_schema())
    for path, wrong in ((("run", "steps"), "5"), (("verdict",), None), (("schema_version",), 2)):
        broken = json.loads(json.dumps(plain))
        place = broken
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = wrong
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, json_schema())


def test_inferred_steps_are_called_so_and_judged_like_others() -> None:
    report = report_of(FakeStore(usual(), ranks=[replace(state_of(), inferred=True)]))

    assert (report.run.inferred, report.verdict.diagnosis) == (True, "INPUT_BOUND")
    assert report.throughput.steps_per_s is not None


def test_unsure_steps_get_no_step_verdict_and_no_steps_a_second() -> None:
    state = replace(state_of(), inferred=True, unsure="5 steps ended by the next batch, 24 by an optimizer")
    report = report_of(FakeStore(usual(), ranks=[state]))

    assert (report.run.inferred, report.step_time.diagnosis) == (True, "INSUFFICIENT_DATA")
    assert "24 by an optimizer" in report.verdict.summary
    assert report.throughput.steps_per_s is None
    assert any("24 by an optimizer" in note for note in report.coverage.notes)


@pytest.mark.parametrize(("num_fetched", "is_noted"), [(1, False), (2, True), (4, False)])
def test_batches_whose_update_was_skipped_are_a_note_and_an_accumulation_is_none(
    num_fetched: int, is_noted: bool
) -> None:
    every = 5 if num_fetched == 2 else 1
    steps = [step._replace(num_micro_batches=num_fetched if step.step % every == 0 else 1) for step in usual()]

    report = report_of(FakeStore(steps, ranks=[replace(state_of(), inferred=True)]))

    said = "20 of 120 batches ended without an update of their own: the time of a skipped one is in the next step"
    assert (said in report.coverage.notes) is is_noted
    assert any("without an update" in note for note in report.coverage.notes) is is_noted


def test_steps_that_were_left_out_or_passed_over_are_counted_in_notes() -> None:
    state = replace(state_of(), unrecorded=Unrecorded(in_threads=12, overlapping=1))
    steps = [step._replace(failed_in=HALTED) if step.step in (7, 8) else step for step in usual()]

    report = report_of(FakeStore(steps, ranks=[state]))

    assert (report.run.steps, report.run.halted_steps, report.run.failed_steps) == (100, 2, 0)
    assert report.coverage.notes[:3] == (
        "2 steps were left out: the process was stopped or traced by a debugger",
        "rank 0: 12 steps in another thread were not recorded: only one step of a process is open at a time",
        "rank 0: 1 step of another coroutine was not recorded: only one step of a process is open at a time",
    )


def test_a_run_that_was_traced_all_along_is_not_judged_and_says_why() -> None:
    verdict = report_of(FakeStore([step._replace(failed_in=HALTED) for step in usual()])).verdict

    assert verdict.diagnosis == "INSUFFICIENT_DATA"
    assert "100 stopped or traced" in verdict.why
    assert verdict.next == "run it without the debugger"


def test_a_rank_that_stands_still_says_so_while_it_does() -> None:
    slot = LiveSlot(0, 101, "input", 29 * SECOND, 30 * SECOND, alive=True, halted="stopped")

    live = report_of(FakeStore(usual(), ended=None, slots=[slot])).run.live

    assert live is not None
    assert live["halted"] == "stopped"
