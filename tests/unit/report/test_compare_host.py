"""Holds a comparison to telling the script's own time from the host's: waits for a core, drift, a slower machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence

import pytest

from tests.unit.report.compared_runs import BASE_MS, run_of, slower, with_outliers
from traceml.report.compare.comparison import compare
from traceml.report.compare.contract import Comparison
from traceml.report.contract import ProcessInfo, Report, SystemInfo
from traceml.views.text.comparison import table

FULL = SystemInfo("NORMAL", num_cores=2.0, cpu_percent_mean=95.0, samples=9)
FREE = SystemInfo("NORMAL", num_cores=2.0, cpu_percent_mean=4.0, samples=9)


def pair(before: Report, after: Report) -> Comparison:
    return compare([before], [after])


def beside(system: SystemInfo, *, waited_pct: Optional[float], cpu_pct: float = 5.0) -> tuple[SystemInfo, ProcessInfo]:
    return system, ProcessInfo(cpu_percent_mean=cpu_pct, waited_for_core_pct=waited_pct)


def stalls(seed: int) -> Sequence[float]:
    return with_outliers(320, share=0.1, times=4.0, seed=seed)


def test_stalls_of_the_scripts_own_do_not_raise_the_floor_of_a_full_host() -> None:
    full = beside(FULL, waited_pct=0.1)

    same, slow = (
        pair(run_of(seed=1, factors=stalls(1), beside=full), run_of(ms, seed=2, factors=stalls(2), beside=full))
        for ms in (BASE_MS, slower("input", 2.0))
    )

    assert same.drift_pct <= 5
    assert same.verdict.diagnosis in ("SAME", "UNDECIDED")
    assert (slow.verdict.diagnosis, slow.verdict.phase) == ("REGRESSION", "input")


def test_a_phase_that_a_few_long_steps_hide_in_the_mean_is_named_for_the_typical_step() -> None:
    rare = [with_outliers(320, share=0.1, times=12.0, seed=seed) for seed in (1, 2)]

    found = pair(run_of(seed=1, factors=rare[0]), run_of(slower("input", 2.0), seed=2, factors=rare[1]))

    assert (found.verdict.diagnosis, found.verdict.phase) == ("REGRESSION", "input")
    assert [row.phase for row in found.phases if row.moved] == []
    assert "no single phase beyond chance in the mean, input in a typical step; " in found.verdict.where


@pytest.mark.parametrize("system", [FULL, FREE])
def test_a_run_that_waited_for_a_core_is_no_regression_however_free_the_others_are(system: SystemInfo) -> None:
    """A core that one hog wants too: every wait of the run is the machine's."""
    crowded = run_of({phase: 2 * ms for phase, ms in BASE_MS.items()}, seed=2, beside=beside(system, waited_pct=50.0))

    found = pair(run_of(seed=1, beside=beside(FREE, waited_pct=0.1)), crowded)

    assert (found.verdict.diagnosis, found.verdict.repeats) == ("UNDECIDED", None)
    assert "waited for a core" in found.verdict.basis
    assert (
        found.verdict.summary
        == "a typical step takes 100 % longer: 40.0 ms, was 20.0. One run a side tells nothing of it."
    )
    assert "[" not in found.verdict.where
    assert "5 runs a side, taking turns" in found.verdict.next
    assert [row.phase for row in found.phases if row.moved] == []


def test_the_floor_holds_what_the_median_step_can_have_waited() -> None:
    """Half of the steps wait as long as the median one: twice the mean. The base holds the first percent."""
    waits = {w: pair(run_of(seed=1), run_of(seed=2, beside=beside(FREE, waited_pct=w))).drift_pct for w in (0, 0.9, 10)}

    assert waits[0.9] == waits[0]
    assert waits[10] == pytest.approx(waits[0] + 2 * 10 / 0.9 - 2, abs=0.5)


@pytest.mark.parametrize(("num_workers", "waited_pct", "raised"), [(0, 3.0, False), (2, 3.0, True), (2, 0.1, False)])
def test_the_waits_of_loader_workers_are_not_counted_so_the_load_speaks_where_the_training_waited(
    num_workers: int, waited_pct: float, *, raised: bool
) -> None:
    full, loader = beside(FULL, waited_pct=waited_pct), {"num_workers": num_workers}
    before, after = (run_of(seed=s, noise=0.1, beside=full, loader=loader) for s in (1, 2))

    assert (pair(before, after).drift_pct > 12) == raised


def test_small_phases_do_not_move_beyond_the_floor_that_the_period_has() -> None:
    """A core's clock at half: what a sleeping run computes doubles, 1.5 % of its step."""
    before, after = ({**BASE_MS, "in_step": ms} for ms in (0.3, 0.6))

    found = pair(run_of(before, seed=1), run_of(after, seed=2))

    assert found.drift_pct == pytest.approx(2.0, abs=0.1)
    assert [row.phase for row in found.phases if row.moved] == []
    assert "no single phase beyond chance" in found.verdict.where


def test_a_wait_for_a_core_can_have_met_one_small_phase_alone() -> None:
    before, after = ({**BASE_MS, "between_steps": ms} for ms in (0.1, 1.5))

    found = pair(run_of(before, seed=1), run_of(after, seed=2, beside=beside(FREE, waited_pct=7.0)))

    assert [row.phase for row in found.phases if row.moved] == []


def times(factor: float, **other: float) -> dict[str, float]:
    return {**{phase: ms * factor for phase, ms in BASE_MS.items()}, **other}


@pytest.mark.parametrize("clock", ["host", "device"])
def test_phases_that_all_take_the_same_share_longer_point_to_the_machine(clock: str) -> None:
    found = pair(run_of(seed=1, clock=clock), run_of(times(1.08), seed=2, clock=clock))

    assert (found.verdict.diagnosis, found.verdict.phase) == ("REGRESSION", None)
    assert "Every phase takes about 8.0 % longer: rather the machine than one part of the script." in (
        found.verdict.summary
    )
    assert found.verdict.alike_pct == pytest.approx(8.0, abs=0.3)
    assert "taking turns" in found.verdict.next


def test_phases_that_all_take_less_time_point_to_the_machine_too() -> None:
    found = pair(run_of(times(1.08), seed=1), run_of(seed=2))

    assert found.verdict.diagnosis == "IMPROVEMENT"
    assert "Every phase takes about 7.4 % less time" in found.verdict.summary


def test_what_else_all_phases_feel_is_named_beside_the_machine() -> None:
    found = pair(run_of(seed=1, torch_version="2.12.0"), run_of(times(1.08), seed=2, torch_version="2.13.0"))

    assert "rather the machine, or torch 2.12.0 → 2.13.0, than one part of the script" in found.verdict.summary


def test_repeats_that_took_turns_met_one_machine() -> None:
    sides = [
        [run_of(ms, seed=10 * side + at, started_at=f"2027-01-15T08:{2 * at + side:02d}:00Z") for at in range(5)]
        for side, ms in enumerate((BASE_MS, times(1.08)))
    ]

    verdict = compare(sides[0], sides[1]).verdict

    assert verdict.diagnosis == "REGRESSION"
    assert "something that all phases share, rather than one part of the script" in verdict.summary
    assert verdict.next.startswith("look at what all phases share")


@pytest.mark.parametrize(
    ("after", "phase"),
    [
        (slower("input", 4.0), "input"),  # one alone
        (times(1.08, input=12.0), "input"),  # all, and one by far
        (times(1.08, optimizer=2.0), "input"),  # all but one
        (times(1.08, backward=6.0 * 1.16), "backward"),  # one twice as much as the others
    ],
)
def test_a_phase_that_changed_on_its_own_is_never_the_machines(after: dict[str, float], phase: str) -> None:
    found = pair(run_of(seed=1), run_of(after, seed=2))

    assert found.verdict.diagnosis == "REGRESSION"
    assert found.verdict.alike_pct is None
    assert "Every phase" not in found.verdict.summary
    assert found.verdict.phase == phase


@pytest.mark.parametrize("mean_ms", [{"forward": 10.0, "backward": 10.0}, {"input": 18.0, "forward": 0.5, "gc": 0.5}])
def test_fewer_than_three_phases_that_matter_say_nothing_of_the_machine(mean_ms: dict[str, float]) -> None:
    longer = {phase: ms * 1.08 for phase, ms in mean_ms.items()}

    assert pair(run_of(mean_ms, seed=1), run_of(longer, seed=2)).verdict.alike_pct is None


def test_phases_too_unsteady_to_tell_are_not_called_alike() -> None:
    before, after = (
        run_of({**BASE_MS, "backward": 0.0, "eval": 6.0 * factor}, seed=s, noise=0.01, num_steps=320)
        for s, factor in ((1, 1.0), (2, 1.3))
    )
    blocks = [
        replace(block, mean_ms={**block.mean_ms, "eval": 2 * block.mean_ms["eval"] * (at % 2)})
        for at, block in enumerate(after.step_time.blocks)
    ]
    patchy = replace(after, step_time=replace(after.step_time, blocks=tuple(blocks)))

    assert pair(before, patchy).verdict.alike_pct is None


def test_no_two_rows_have_one_name_and_each_says_what_it_is() -> None:
    names = ("rest", "all else", "step", "x\x1b", "x", 50 * "y" + "1", 50 * "y" + "2")
    mean_ms = {**BASE_MS, "in_step": 1.0, "between_steps": 1.0, "gc": 0.05, **{f"region:{n}": 0.5 for n in names}}

    found = pair(run_of(mean_ms, seed=1), run_of(mean_ms, seed=2))

    labels = [row.label for row in table(found)]
    assert len(set(labels)) == len(labels)
    assert {"rest in the step", "between steps", "all else", "region all else", "region step"} <= set(labels)


def test_what_is_not_measured_in_every_run_is_all_else() -> None:
    found = pair(run_of({**BASE_MS, "in_step": 1.0}, seed=1), run_of({**BASE_MS, "in_step": 1.0, "gc": 1.0}, seed=2))

    assert [row.phase for row in found.phases][-2:] == ["all_else", "step"]
    assert [row.label for row in table(found)][-2:] == ["all else", "step"]
    assert "all else +" in found.verdict.where
