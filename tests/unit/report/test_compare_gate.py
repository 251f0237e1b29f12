"""Holds the gate to what is known: slower is 1, fine is 0, and where it may be slower it is 3."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.report.compared_runs import BASE_MS, FREE_OF_NOISE, report_from, run_of, slower, with_outliers
from traceml.report.compare.comparison import compare
from traceml.report.compare.contract import Comparison
from traceml.report.contract import ProcessInfo, Report, SystemInfo

MOVED = {**BASE_MS, "input": 1.0, "forward": 13.0}  # 2 ms more in all
MET = (1.0, 1.7, 0.8, 1.4)


def repeats(mean_ms: dict[str, float], *, side: int, met: tuple[float, ...] = MET, turns: bool = True) -> list[Report]:
    """Repeats that met a machine as fast as that; `turns`: with the other side's."""
    return [
        run_of(
            {phase: ms * factor for phase, ms in mean_ms.items()},
            seed=10 * at + side,
            started_at=f"2027-01-15T08:{2 * at + side if turns else 10 * side + at:02d}:00+00:00",
        )
        for at, factor in enumerate(met)
    ]


@pytest.mark.parametrize("margin", [0.03, 0.10, 0.40])
def test_time_that_moved_passes_no_gate_while_the_step_may_be_slower(margin: float) -> None:
    found = compare(repeats(dict(BASE_MS), side=0), repeats(MOVED, side=1, met=MET[::-1]), margin=margin)

    assert found.typical is not None
    assert (found.typical.high_pct or 0.0) > 100 * margin
    assert (found.verdict.is_slower, found.verdict.is_open) == (False, True)


def test_a_margin_that_is_wider_never_closes_what_a_narrower_one_leaves_open() -> None:
    sides = repeats(dict(BASE_MS), side=0), repeats(MOVED, side=1, met=MET[::-1])
    fails = [compare(*sides, margin=margin).verdict.is_open for margin in (0.01, 0.03, 0.1, 0.3, 0.5)]

    assert fails == sorted(fails, reverse=True)


def test_time_that_moved_in_a_step_that_is_the_same_passes() -> None:
    even = {**BASE_MS, "input": 6.0, "forward": 6.0}
    found = compare(
        repeats(dict(BASE_MS), side=0, met=FREE_OF_NOISE), repeats(even, side=1, met=FREE_OF_NOISE), margin=0.05
    )

    assert found.verdict.diagnosis == "MIXED"
    assert (found.verdict.is_slower, found.verdict.is_open) == (False, False)


def test_all_steps_together_that_are_faster_pass_whatever_the_typical_one_does() -> None:
    stalled = with_outliers(320, share=0.05, times=20.0, seed=1)
    found = compare([run_of(seed=1, factors=stalled)], [run_of(seed=2)])

    assert found.verdict.diagnosis == "MIXED"
    assert (found.verdict.is_slower, found.verdict.is_open) == (False, False)


@pytest.mark.parametrize("both", [False, True])
def test_repeats_one_side_after_the_other_that_had_no_cores_are_not_judged(both: bool) -> None:
    def starved(report: Report, waited_pct: float) -> Report:
        full = SystemInfo("NORMAL", num_cores=2.0, cpu_percent_mean=95.0, samples=9)
        return replace(report, system=full, process=ProcessInfo(cpu_percent_mean=60.0, waited_for_core_pct=waited_pct))

    slow = {phase: 2 * ms for phase, ms in BASE_MS.items()}
    before = [starved(run, 50.0 if both else 3.0) for run in repeats(dict(BASE_MS), side=0, turns=False)]
    after = [starved(run, 60.0) for run in repeats(slow, side=1, turns=False)]

    found = compare(before, after)

    assert (found.verdict.diagnosis, found.verdict.is_open) == ("UNDECIDED", True)


def test_an_open_step_whose_forward_surely_takes_longer_says_so_and_where_to_look() -> None:
    """Every 24th forward takes 80 ms; the loader waits for a disk that others use, too."""

    def run(side: int, at: int, fetch_ms: float) -> Report:
        rows = [{"input": fetch_ms, "forward": 84.0 if side and step % 24 == 0 else 4.0} for step in range(240)]
        return report_from(rows, name=f"run-{side}-{at}", started_at=f"2027-01-15T08:{2 * at + side:02d}:00+00:00")

    before = [run(0, at, fetch_ms) for at, fetch_ms in enumerate((16.0, 25.0, 14.0, 22.0))]
    after = [run(1, at, fetch_ms) for at, fetch_ms in enumerate((15.0, 18.0, 26.0, 16.5))]

    found: Comparison = compare(before, after)

    assert (found.verdict.diagnosis, found.verdict.phase) == ("UNDECIDED", "forward")
    assert "That forward takes longer is more than chance." in found.verdict.summary
    assert found.verdict.next.startswith("look at what changed in forward; for the step itself ")


def test_the_largest_mover_is_named_although_it_can_be_chance() -> None:
    before, after = repeats(dict(BASE_MS), side=0), repeats(slower("optimizer", 3.0), side=1, met=(1.9, 1.0, 1.5, 1.2))

    where = compare(before, after).verdict.where

    assert "input +" in where
    assert "(can be chance)" in where or "no single phase beyond chance" in where


def test_epochs_of_other_lengths_are_no_other_batches() -> None:
    """Of 20 samples in batches of 8 the last one has 4: 6.67 a step."""
    short, long = (
        replace(run_of(seed=seed, samples=samples), loader={"batch_size": 8, "num_workers": 0})
        for seed, samples in ((1, 6.67), (2, 7.64))
    )

    assert compare([short], [long]).verdict.diagnosis != "INCOMPARABLE"
    assert compare([short], [replace(long, loader={"batch_size": 16})]).verdict.diagnosis == "INCOMPARABLE"
