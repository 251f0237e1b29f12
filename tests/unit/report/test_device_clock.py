"""Tests what a report says on the device's clock: which clock, the wall beside it, and what has no device times."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tests.builders import numbered, step_ms, timed
from tests.unit.report.store_fakes import MANIFEST, SECOND, FakeStore, state_of
from traceml.report.build import build_report
from traceml.report.check import check_of
from traceml.report.contract import ImpactInfo, Report
from traceml.report.files import summary_text
from traceml.report.flat import flat_summary
from traceml.report.schema import json_schema
from traceml.report.trim import trimmed
from traceml.schema.records import RankState, StepRecord
from traceml.views.text.card import card

HOST = step_ms(input=12, forward=1, backward=1, in_step=6)
TIMED = timed(HOST, run_ahead=(0.0, 0.1), input=1, forward=6, backward=12)


def rank_on(device: str, **known: Any) -> RankState:
    state = state_of()
    return replace(state, identity=replace(state.identity, device=device), **known)


def report_of(steps: list[StepRecord], state: RankState) -> Report:
    store = FakeStore(list(numbered(steps)), ranks=[state])
    return build_report(store, MANIFEST, now_wall=1_800_000_030.0, now_ns=30 * SECOND)


def on_device(number: int = 200, num_without: int = 0, **known: Any) -> Report:
    return report_of([*[TIMED] * (number - num_without), *[HOST] * num_without], rank_on("cuda:0", **known))


def test_shares_and_periods_are_on_the_verdicts_clock_and_the_wall_stays() -> None:
    time = on_device().step_time

    assert (time.clock, time.dataloader_pct, time.forward_pct) == ("device", 5.3, 31.6)
    assert time.period_ms.mean == 19
    assert time.wall_period_ms is not None
    assert time.wall_period_ms.mean == 20
    assert all(block.wall_period_ms == pytest.approx(20, rel=0.01) for block in time.blocks)


def test_on_the_hosts_clock_the_wall_is_the_period() -> None:
    time = report_of([HOST] * 40, rank_on("cpu")).step_time

    assert (time.clock, time.run_ahead_ms) == ("host", None)
    assert time.wall_period_ms == time.period_ms
    assert all(block.wall_period_ms is None for block in time.blocks)


def test_how_far_the_device_is_behind_is_told_with_both_bounds() -> None:
    ahead = on_device().step_time.run_ahead_ms

    assert ahead is not None
    assert (ahead.low_p50_ms, ahead.steps, ahead.near_steps) == (0, 200, 200)
    assert ahead.high_p50_ms == pytest.approx(0.1, rel=0.01)


def test_steps_without_device_times_are_counted_in_coverage() -> None:
    cover = on_device(num_without=20, clock="device", num_lost_events=36, num_other_events=4).coverage

    assert (cover.clock, cover.ranks[0].device_steps, cover.ranks[0].steady_steps) == ("device", 180, 200)
    assert "rank 0: 20 of 200 steady steps have no device times and are not in the shares" in cover.notes
    assert any("36 device events" in note for note in cover.notes)
    assert any("4 events on another device" in note for note in cover.notes)


def test_the_last_steps_of_a_run_are_worth_no_note() -> None:
    cover = on_device(num_without=2, clock="device", num_lost_events=24).coverage

    assert (cover.ranks[0].device_steps, cover.ranks[0].steady_steps) == (198, 200)
    assert cover.notes == ()


def test_too_few_steps_with_the_devices_clock_are_told_with_the_reason() -> None:
    report = on_device(num_without=150, clock="device", num_lost_events=900)

    assert report.step_time.clock == report.coverage.clock == "host"
    assert any("only 50 of 200" in note for note in report.coverage.notes)
    assert any("900 device events" in note for note in report.coverage.notes)


def test_throughput_is_of_the_wall_whatever_the_clock() -> None:
    steps = [step._replace(num_samples=64) for step in [*[TIMED] * 180, *[HOST] * 20]]

    rate = report_of(steps, rank_on("cuda:0")).throughput

    assert rate.samples_per_s == pytest.approx(64 / 0.020)
    assert rate.steps_per_s == pytest.approx(1 / 0.020)


def test_the_summary_of_a_device_run_is_valid_and_small() -> None:
    text = summary_text(on_device())

    jsonschema.validate(json.loads(text), json_schema())
    assert len(text) < 32 * 1024


def test_blocks_that_become_one_keep_the_wall() -> None:
    report = trimmed(on_device(), max_bytes=1_000)

    assert len(report.step_time.blocks) <= 16
    assert all(block.wall_period_ms == pytest.approx(20, rel=0.01) for block in report.step_time.blocks)


def test_a_tracker_gets_the_clock_and_the_wall() -> None:
    flat = flat_summary(on_device())

    assert flat["traceml/step_time/clock"] == "device"
    assert flat["traceml/step_time/wall_period_mean_ms"] == 20


def clock_row(report: Report) -> str:
    return next((line for line in card(report).splitlines() if line.startswith("      clock ")), "")


def test_the_card_shows_the_clock_beside_a_device_only() -> None:
    mps = rank_on("mps", clock_note="MPS and XPU use the host clock")

    assert "the device's; a step takes 20.0 ms of the wall" in clock_row(on_device())
    assert "the host's (MPS and XPU use the host clock)" in clock_row(report_of([HOST] * 40, mps))
    assert clock_row(report_of([HOST] * 40, rank_on("cpu"))) == ""


def test_the_check_table_says_which_clock_and_why() -> None:
    def device_row(report: Report) -> str:
        return next(row.text for row in check_of(report, []).rows if row.name == "device")

    mps = rank_on("mps", clock_note="MPS and XPU use the host clock")
    assert device_row(on_device()) == "cuda:0, timed by the device's own clock"
    assert device_row(report_of([HOST] * 40, mps)) == (
        "mps, timed by the host's clock (MPS and XPU use the host clock)"
    )


def test_a_lower_bound_of_the_price_of_a_waiting_device_is_not_promised() -> None:
    report = on_device()
    found = replace(report.verdict, diagnosis="HOST_BOUND", impact=ImpactInfo(8.0, 40.0, 7.0, 9.0, 1.7))

    assert "at most" in card(replace(report, verdict=found))
