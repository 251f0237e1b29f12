"""Holds a comparison to its promises: the verdict, where the time moved, and what it will not say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.unit.report.compared_runs import BASE_MS, BUSY, on_device, run_of, slower, with_outliers
from traceml.errors import RunError, UsageError
from traceml.report.compare.comparison import compare
from traceml.report.compare.contract import Comparison
from traceml.report.compare.schema import comparison_text, json_schema, schema_text
from traceml.report.contract import BlockInfo, ProcessInfo, RankRow, RanksInfo, Report, SystemInfo


def pair(before: Report, after: Report, **more: Any) -> Comparison:
    return compare([before], [after], **more)


def started(at: int) -> str:
    return f"2027-01-15T08:{at:02d}:00+00:00"


def repeats(mean_ms: Any, *, first: int, every: int, seeds: range, **more: Any) -> list[Report]:
    return [run_of(mean_ms, seed=s, started_at=started(first + every * i), **more) for i, s in enumerate(seeds)]


def test_a_slower_phase_is_a_regression_and_is_named_and_nothing_else_moved() -> None:
    """K4: +6 ms in the optimizer alone."""
    found = pair(run_of(seed=1), run_of(slower("optimizer", 6.0), seed=2))

    assert found.verdict.diagnosis == "REGRESSION"
    assert found.verdict.phase == "optimizer"
    assert found.verdict.is_slower
    assert found.verdict.where.startswith("+6.0")
    assert ": optimizer +6.0" in found.verdict.where
    assert [row.phase for row in found.phases if row.moved] == ["optimizer", "step"]


def test_a_faster_phase_is_an_improvement() -> None:
    found = pair(run_of(slower("input", 6.0), seed=1), run_of(seed=2))

    assert (found.verdict.diagnosis, found.verdict.phase) == ("IMPROVEMENT", "input")
    assert not found.verdict.is_slower
    assert "less time" in found.verdict.summary


def test_two_runs_of_one_script_are_the_same_within_the_margin() -> None:
    found = pair(run_of(seed=1), run_of(seed=2))

    assert found.verdict.diagnosis == "SAME"
    assert "within 3.0 %" in found.verdict.summary


def test_noise_of_a_busy_machine_is_undecided_and_says_how_many_repeats_would_decide() -> None:
    """K2: a single pair knows nothing of the drift between runs."""
    found = pair(run_of(noise=0.1, seed=1, beside=BUSY), run_of(slower("input", 0.6), noise=0.1, seed=2, beside=BUSY))

    assert found.verdict.diagnosis == "UNDECIDED"
    assert found.verdict.repeats is not None
    many = found.verdict.repeats
    assert found.verdict.next.startswith(f"about {many} runs a side, taking turns, would decide")
    assert f"`traceml compare A1 ... A{many} --against B1 ... B{many}`" in found.verdict.next
    assert found.drift_pct > 5


def test_a_run_that_others_starved_is_not_judged_by_one_run_a_side() -> None:
    full = (SystemInfo("NORMAL", num_cores=2.0, cpu_percent_mean=99.0, samples=9), ProcessInfo(cpu_percent_mean=30.0))
    stalls = [1.0 if at % 10 else 3.0 for at in range(320)]

    found = pair(run_of(seed=1), run_of(slower("input", 20.0), seed=2, beside=full, factors=stalls))

    assert (found.verdict.diagnosis, found.verdict.repeats) == ("UNDECIDED", None)
    assert "while cores are free, 5 runs a side, taking turns" in found.verdict.next
    assert "the host was full" in found.verdict.basis
    assert any("others kept the host busy" in note for note in found.notes)


def test_on_a_host_that_others_fill_the_floor_grows_with_the_spread_of_the_steps() -> None:
    full = (SystemInfo("NORMAL", num_cores=2.0, cpu_percent_mean=99.0, samples=9), ProcessInfo(cpu_percent_mean=6.0))

    calm, rough = (pair(run_of(seed=1), run_of(seed=2, beside=full, noise=noise)) for noise in (0.0, 0.2))

    assert calm.drift_pct < 4
    assert rough.drift_pct > 20


def test_a_change_inside_the_floor_of_a_single_pair_is_undecided_on_the_quietest_machine() -> None:
    found = pair(run_of(seed=1), run_of(slower("input", 0.36), seed=2))

    assert found.verdict.diagnosis == "UNDECIDED"
    assert f"{found.drift_pct:.1f} % for drift from run to run" in found.verdict.basis


def test_repeats_that_take_turns_prove_what_a_single_pair_cannot() -> None:
    before = repeats(BASE_MS, first=0, every=2, seeds=range(1, 6))
    after = repeats(slower("input", 0.36), first=1, every=2, seeds=range(6, 11))

    found = compare(before, after)

    assert (found.verdict.diagnosis, found.verdict.phase) == ("REGRESSION", "input")
    assert found.drift_pct == 0
    assert "5 runs against 5, taking turns" in found.verdict.basis


def test_repeats_one_side_after_the_other_may_have_met_another_machine() -> None:
    before = repeats(BASE_MS, first=0, every=1, seeds=range(1, 6))
    after = repeats(slower("input", 0.36), first=10, every=1, seeds=range(6, 11))

    found = compare(before, after)

    assert found.verdict.diagnosis != "REGRESSION"
    assert found.drift_pct == pytest.approx(2, rel=0.1)
    assert "one side after the other" in found.verdict.basis


def test_one_run_against_many_is_judged_like_a_pair() -> None:
    found = compare([run_of(seed=1)], [run_of(slower("input", 4.0), seed=s) for s in (2, 3)])

    assert found.verdict.diagnosis == "REGRESSION"
    assert found.drift_pct >= 2


def test_a_margin_is_what_counts_as_a_change_and_as_the_same() -> None:
    before, after = run_of(seed=1), run_of(slower("input", 1.0), seed=2)

    assert pair(before, after).verdict.diagnosis == "REGRESSION"
    assert pair(before, after, margin=0.07).verdict.diagnosis == "UNDECIDED"  # 5 %, and up to 7.3
    assert pair(before, after, margin=0.10).verdict.diagnosis == "SAME"


def test_rare_long_steps_alone_are_mixed_and_slower() -> None:
    rare = run_of(seed=2, factors=[1.0 if at % 8 else 6.0 for at in range(320)])

    found = pair(run_of(seed=1), rare)

    assert found.verdict.diagnosis == "MIXED"
    assert "rare long steps" in found.verdict.summary
    assert found.verdict.is_slower


def test_time_that_went_from_one_phase_to_another_is_mixed() -> None:
    found = pair(run_of(seed=1), run_of({**BASE_MS, "input": 5.0, "forward": 7.0}, seed=2))

    assert found.verdict.diagnosis == "MIXED"
    assert "from one phase to another" in found.verdict.summary
    assert not found.verdict.is_slower


def test_the_waterfall_adds_up_to_the_step_and_so_does_the_sentence() -> None:
    found = pair(run_of(seed=1), run_of({**slower("input", 3.0), "backward": 6.5, "eval": 0.4}, seed=2))

    *parts, step = found.phases
    assert step.phase == "step"
    assert sum(row.change_ms for row in parts) == pytest.approx(step.change_ms, abs=0.01)
    said = found.verdict.where.partition(": ")[2].replace(" (can be chance)", "")
    told = [float(part.rsplit(" ", 1)[1]) for part in said.split(", ")]
    assert sum(told) == pytest.approx(float(found.verdict.where.split(" ")[0]), abs=1e-9)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"world_size": 2}, "other world sizes (1 and 2)"),
        ({"device": "cuda:0"}, "other devices (cpu and cuda)"),
        ({"clock": "device"}, "other clocks (the host's and the device's)"),
        ({"samples": 64.0}, "other batches (32 and 64 samples a step)"),
        ({"micro_batches": 1280}, "other accumulation (1 and 4 micro-batches a step)"),
        ({"model": "Net, 2,408 parameters"}, "other models (Net, 1,204 parameters and Net, 2,408 parameters)"),
    ],
)
def test_steps_of_another_kind_are_incomparable_and_the_reason_is_said(change: Any, reason: str) -> None:
    """K1 among them: two clocks have two meanings."""
    usual: dict[str, Any] = {"micro_batches": 320, "model": "Net, 1,204 parameters"}
    before = run_of(seed=1, **usual)
    after = run_of(slower("input", 5.0), seed=2, **{**usual, **change})

    found = pair(before, after)

    assert found.verdict.diagnosis == "INCOMPARABLE"
    assert found.verdict.reasons == (reason,)
    assert reason in found.verdict.summary
    assert found.phases == ()
    assert found.typical is None
    assert found.quantities


@pytest.mark.parametrize("model", ["Network, 1,204 parameters", ""])
def test_a_model_with_another_name_or_of_an_older_summary_is_the_same_kind(model: str) -> None:
    before = run_of(seed=1, model="Net, 1,204 parameters")

    assert pair(before, run_of(seed=2, model=model)).verdict.diagnosis != "INCOMPARABLE"


@pytest.mark.parametrize(("wall_ms", "diagnosis"), [(20.0, "SAME"), (25.0, "REGRESSION"), (16.0, "IMPROVEMENT")])
def test_two_clocks_are_compared_on_the_walls_which_both_have(wall_ms: float, diagnosis: str) -> None:
    """K1: A has device times, B the host's alone."""
    found = pair(run_of(seed=1), on_device(run_of(seed=2), wall_ms=wall_ms))

    assert found.verdict.diagnosis == diagnosis
    assert found.verdict.phase is None
    assert [row.phase for row in found.phases] == ["step"]
    assert diagnosis != "REGRESSION" or found.verdict.next == "compare runs on one clock: they show which phase it is"
    assert any("compared on the wall's" in note for note in found.notes)


def test_fewer_micro_batches_than_steps_tell_nothing_of_the_accumulation() -> None:
    found = pair(run_of(seed=1, micro_batches=320), run_of(seed=2, micro_batches=32))

    assert found.verdict.diagnosis == "SAME"


def test_the_loaders_batch_tells_where_samples_were_not_counted() -> None:
    before, after = (run_of(seed=s, samples=None, loader={"batch_size": size}) for s, size in ((1, 16), (2, 32)))

    assert pair(before, after).verdict.reasons == ("other batches (16 and 32 samples)",)


def test_another_device_of_one_kind_and_a_smaller_last_batch_are_no_reason() -> None:
    found = pair(run_of(seed=1, device="cuda:0"), run_of(seed=2, device="cuda:1", samples=31.0))

    assert found.verdict.diagnosis == "SAME"


def test_another_host_widens_the_floor_and_is_said() -> None:
    found = pair(run_of(seed=1), run_of(slower("input", 1.6), seed=2, hostname="node-2"))

    assert found.verdict.diagnosis == "UNDECIDED"
    assert found.drift_pct >= 10
    assert any("different hosts" in note for note in found.notes)


def test_runs_on_the_devices_clock_are_compared_on_it() -> None:
    found = pair(run_of(seed=1, clock="device"), run_of(slower("backward", 2.0), seed=2, clock="device"))

    assert (found.verdict.diagnosis, found.verdict.phase) == ("REGRESSION", "backward")


def test_a_phase_that_was_measured_in_one_run_alone_stands_in_the_rest() -> None:
    blind = {name: ms for name, ms in BASE_MS.items() if name != "input"}

    found = pair(run_of({**blind, "between_steps": 8.0}, seed=1), run_of({**BASE_MS, "between_steps": 0.0}, seed=2))

    assert found.verdict.diagnosis == "SAME"
    assert [row.phase for row in found.phases] == ["forward", "backward", "optimizer", "all_else", "step"]
    assert "input: not measured in every run, so it stands in all else" in found.notes


def test_settings_that_differ_are_listed() -> None:
    before = run_of(seed=1, loader={"num_workers": 4, "batch_size": 32}, torch_version="2.12.0")
    after = run_of(seed=2, loader={"num_workers": 0, "batch_size": 32}, torch_version="2.13.0")

    assert pair(before, after).changed == ("num_workers 4 → 0", "torch 2.12.0 → 2.13.0")


def test_runs_that_ended_badly_are_compared_all_the_same() -> None:
    killed = run_of(slower("input", 5.0), seed=2, status="killed", ended_by="signal SIGKILL", exit_code=137)

    found = pair(run_of(seed=1), killed)

    assert found.verdict.diagnosis == "REGRESSION"
    assert found.after[0].status == "killed"


def test_of_many_ranks_the_median_and_the_worst_stand_beside_the_step() -> None:
    def ranked(report: Report, worst_ms: float) -> Report:
        rows = (RankRow(3, 320, 20.0, {"sync": 20.0 - worst_ms}), RankRow(0, 320, 20.0, {"sync": 5.0}))
        return replace(report, step_time=replace(report.step_time, ranks=RanksInfo(0, 3, rows)))

    before, after = ranked(run_of(seed=1, world_size=4), 16.0), ranked(run_of(seed=2, world_size=4), 19.0)

    found = pair(before, after)

    assert [(row.which, row.before_ms, row.after_ms) for row in found.ranks] == [
        ("median", 15.0, 15.0),
        ("worst", 16.0, 19.0),
    ]


def test_too_few_steady_steps_are_undecided_with_the_count() -> None:
    found = pair(run_of(seed=1), run_of(seed=2, num_steps=5, name="short"))

    assert found.verdict.diagnosis == "UNDECIDED"
    assert found.verdict.summary == "the run 'short' has 5 steady steps, a comparison needs 8."
    assert found.verdict.repeats is None


def test_outliers_move_neither_the_verdict_nor_hide_a_change() -> None:
    def stalls(seed: int) -> list[float]:
        return with_outliers(320, share=0.02, times=5.0, seed=seed)

    before, after = run_of(seed=1, factors=stalls(1)), run_of(slower("backward", 1.5), seed=2, factors=stalls(2))

    assert pair(before, run_of(seed=3, factors=stalls(3))).verdict.diagnosis in ("SAME", "UNDECIDED")
    assert pair(before, after).verdict.diagnosis == "REGRESSION"


def test_a_run_without_steps_is_refused() -> None:
    with pytest.raises(RunError) as caught:
        pair(run_of(seed=1), run_of(seed=2, steps=0))

    assert caught.value.slug == "no-steps"


@pytest.mark.parametrize(
    "block",
    [BlockInfo(0, 1.0, {}), BlockInfo(-3, 1.0, {}), BlockInfo(5, 0.0, {}), BlockInfo(5, -1.0, {}),
     BlockInfo(5, 1e300, {}), BlockInfo(5, 1.0, {"input": -1.0}), BlockInfo(10**18, 1.0, {})],
)  # fmt: skip
def test_numbers_that_no_run_can_have_are_refused(block: BlockInfo) -> None:
    good = run_of(seed=1)
    bad = replace(good, step_time=replace(good.step_time, blocks=(block, *good.step_time.blocks[1:])))

    with pytest.raises(RunError) as caught:
        pair(good, bad)

    assert caught.value.slug == "damaged-summary"


def test_more_blocks_than_a_summary_has_are_refused() -> None:
    good = run_of(seed=1)
    bad = replace(good, step_time=replace(good.step_time, blocks=good.step_time.blocks * 2))

    with pytest.raises(RunError):
        pair(good, bad)


def test_a_side_without_a_run_is_a_mistake() -> None:
    with pytest.raises(UsageError):
        compare([run_of()], [])


def test_the_same_reports_give_the_same_comparison() -> None:
    before, after = run_of(seed=1, noise=0.1), run_of(seed=2, noise=0.1)

    assert pair(before, after) == pair(before, after)


@pytest.mark.parametrize("after", [run_of(slower("input", 9.0), seed=2), run_of(seed=2, world_size=2)])
def test_what_is_printed_as_json_is_what_the_schema_in_the_package_says(after: Report) -> None:
    from importlib.resources import files

    text = (files("traceml.report.compare") / "comparison.schema.json").read_text(encoding="utf-8")

    found = json.loads(comparison_text(pair(run_of(seed=1), after)))

    assert text == schema_text()
    Draft202012Validator.check_schema(json_schema())
    Draft202012Validator(json_schema()).validate(found)
