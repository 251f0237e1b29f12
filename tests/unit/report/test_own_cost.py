"""Holds the report to what the recorder billed, and to absence where a signal was given up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.unit.report.store_fakes import MANIFEST, SECOND, FakeStore, state_of, step_ms
from traceml.analysis.knowledge import learned
from traceml.report.build import build_report
from traceml.schema import phases
from traceml.schema.bill import Bill, Shed
from traceml.schema.records import LoaderInfo, RankState, Watching
from traceml.views.text.card import card

if TYPE_CHECKING:
    from traceml.report.contract import Report

BILL = Bill(num_steps=1000, num_clocked=64, own_ns=20_000_000, wall_ns=4_000_000_000)
WHY = "given up at step 60: tracing took 8.5 % of the period"


def shed(signal: str) -> Shed:
    return Shed(signal, step=60, at_ns=SECOND, us_per_step=95.4, pct=8.5, signal_us=80.1)


def report_of(*states: RankState, last_with_gc: int = 100, window: Any = None) -> Report:
    steps = []
    for state in states:
        for number in range(1, 101):
            step = step_ms(number, rank=state.identity.rank, num_samples=8, forward=2.0, backward=3.0, gc=0.5)
            if number > last_with_gc:  # its time is in the phase around it
                times = list(step.phase_ns)
                times[phases.PHASE_INDEX[phases.GC]] = None
                step = step._replace(phase_ns=tuple(times), period_ns=sum(ns or 0 for ns in times))
            steps.append(step)
    store = FakeStore(steps, ranks=list(states))
    return build_report(store, MANIFEST, window=window, now_wall=1_800_000_030.0, now_ns=30 * SECOND)


def test_the_bill_is_in_the_summary_with_its_method() -> None:
    overhead = report_of(replace(state_of(), bill=BILL)).overhead

    assert overhead is not None
    assert (overhead.us_per_step, overhead.pct) == (20.0, 0.5)
    assert "64 of 1,000 steps" in overhead.method
    assert "not in it" in overhead.method


def test_without_a_bill_there_is_none_not_zero() -> None:
    assert report_of(state_of()).overhead is None


def test_of_several_ranks_it_is_the_dearest_ones() -> None:
    dear = replace(BILL, own_ns=80_000_000)
    states = (replace(state_of(0, world_size=2), bill=BILL), replace(state_of(1, world_size=2), bill=dear))

    overhead = report_of(*states).overhead

    assert overhead is not None
    assert overhead.pct == 2.0


def test_the_card_says_what_tracing_took() -> None:
    assert "tracing 0.5 %" in card(report_of(replace(state_of(), bill=BILL)))


def test_what_was_given_up_and_since_when_is_a_note_on_the_card_too() -> None:
    state = learned(state_of(), shed("batches"))
    report = report_of(state)

    note = "counting samples and tokens given up at step 60: tracing took 95 us a step, 8.5 % of the period"
    assert note in report.coverage.notes
    assert "given up at step 60" in " ".join(card(report).split())


def test_a_rate_of_samples_is_absent_once_they_are_not_counted_to_the_end() -> None:
    assert report_of(state_of()).throughput.samples_per_s is not None
    told = report_of(learned(state_of(), shed("batches"))).throughput

    assert (told.samples_per_s, told.tokens_per_s, told.wall_samples_per_s) == (None, None, None)
    assert told.steps_per_s is not None


def test_samples_that_the_loader_tells_are_counted_all_the_same() -> None:
    state = replace(learned(state_of(), shed("batches")), loaders=(LoaderInfo(1, batch_size=8),))

    assert report_of(state).throughput.samples_per_s is not None


def test_collections_are_null_in_steps_that_do_not_watch_them() -> None:
    state = learned(learned(state_of(), shed("gc")), Watching(("forward",), {phases.GC: WHY}))

    report = report_of(state, last_with_gc=60)
    later = report_of(state, last_with_gc=60, window=(61, 100))

    assert f"not watched: garbage collection ({WHY})" in report.coverage.notes
    assert report.step_time.phases[phases.GC].pct  # of the steps before
    row = later.step_time.phases.get(phases.GC)
    assert row is None or row.pct is None
    assert phases.GC in later.coverage.unseen


def test_each_signal_is_given_up_once_in_what_is_known_of_a_rank() -> None:
    state = learned(learned(learned(state_of(), shed("gc")), shed("gc")), shed("memory"))

    assert [one.signal for one in state.shed] == ["gc", "memory"]
