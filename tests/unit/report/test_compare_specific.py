"""Tests the change of one phase of a pair, told by what the other phases share."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit.report.compared_runs import BASE_MS, BUSY, QUIET, run_of
from traceml.report.compare.comparison import compare
from traceml.report.compare.contract import Comparison
from traceml.report.contract import Report

PHASES = ("input", "forward", "backward", "optimizer")


def slept(
    more: Optional[dict[str, float]] = None,
    *,
    longer: float = 1.0,
    seed: int = 1,
    cpu: float = 15.0,
    waited: Optional[float] = 0.3,
) -> Report:
    """A run of a script that sleeps: what it shares with no other is `longer`, what it alone takes `more` ms."""
    system, process = QUIET
    mean_ms = {phase: ms * longer + (more or {}).get(phase, 0.0) for phase, ms in BASE_MS.items()}
    beside = (system, replace(process, cpu_percent_mean=cpu, waited_for_core_pct=waited))
    return run_of(mean_ms, seed=seed, beside=beside)


def step_ms() -> float:
    return sum(BASE_MS.values())


def verdict_of(before: Report, after: Report) -> tuple[str, Optional[str]]:
    found: Comparison = compare([before], [after])
    return found.verdict.diagnosis, found.verdict.phase


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("longer", [0.985, 1.0, 1.015])
def test_5_percent_in_one_phase_is_found_although_the_runs_drift(phase: str, longer: float) -> None:
    after = slept({phase: 0.05 * step_ms()}, longer=longer, seed=2)

    assert verdict_of(slept(), after) == ("REGRESSION", phase)
    assert verdict_of(after, slept()) == ("IMPROVEMENT", phase)


@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("longer", [0.96, 0.98, 1.0, 1.02, 1.045])
def test_what_all_phases_share_is_drift(longer: float, seed: int) -> None:
    assert verdict_of(slept(), slept(longer=longer, seed=seed))[0] in {"UNDECIDED", "SAME"}


@pytest.mark.parametrize(
    "beside", [{"cpu": 95.0}, {"waited": 6.0}, {"waited": None}], ids=["computes", "had no core", "nobody counted"]
)
def test_it_is_told_only_of_steps_that_wait_and_had_their_cores(beside: dict[str, Optional[float]]) -> None:
    before, after = (
        slept(more, longer=longer, seed=seed, **beside)  # type: ignore[arg-type]
        for seed, longer, more in ((1, 1.03, {}), (2, 1.0, {"forward": 0.05 * step_ms()}))
    )

    assert verdict_of(before, after)[0] == "UNDECIDED"


def test_two_phases_that_change_apart_are_not_one() -> None:
    after = slept({"input": 0.04 * step_ms(), "forward": -0.02 * step_ms()}, seed=2)

    assert verdict_of(slept(), after)[0] != "SAME"
    assert verdict_of(slept(), after)[1] != "optimizer"


def test_a_step_that_takes_no_longer_is_no_regression_whatever_one_phase_does() -> None:
    after = slept({"forward": 0.04 * step_ms()}, longer=0.965, seed=2)

    assert verdict_of(slept(), after)[0] != "REGRESSION"


def test_a_tenth_more_in_all_phases_is_more_than_drift() -> None:
    assert verdict_of(slept(), slept(longer=1.1, seed=2))[0] == "REGRESSION"


def computed(
    more: Optional[dict[str, float]] = None, *, met: tuple[float, ...], side: int, others: float = 1.0
) -> list[Report]:
    """Repeats that take turns and compute: in each the machine was slower by what it met, in all phases."""
    mean_ms = {phase: ms * (1.0 if phase in (more or {}) else others) for phase, ms in BASE_MS.items()}
    taken = {phase: ms + (more or {}).get(phase, 0.0) for phase, ms in mean_ms.items()}
    return [
        run_of(
            {phase: ms * factor for phase, ms in taken.items()},
            noise=0.05,
            seed=10 * at + side,
            num_steps=200,
            beside=BUSY,
            started_at=f"2027-01-15T08:{2 * at + side:02d}:00+00:00",
        )
        for at, factor in enumerate(met)
    ]


MET = (1.08, 1.06, 1.0, 0.97, 0.96)
MET_BESIDE_OTHERS = (1.4, 1.1, 1.0, 0.98, 1.06)


@pytest.mark.parametrize("phase", PHASES)
def test_repeats_find_10_percent_in_one_phase_although_one_run_met_a_machine_a_third_slower(phase: str) -> None:
    before = computed(met=MET, side=0)
    after = computed({phase: 0.1 * step_ms()}, met=MET_BESIDE_OTHERS, side=1)

    for found, diagnosis in ((compare(before, after), "REGRESSION"), (compare(after, before), "IMPROVEMENT")):
        assert (found.verdict.diagnosis, found.verdict.phase) == (diagnosis, phase)
        assert found.typical is not None
        assert min(abs(found.typical.low_pct or 0.0), abs(found.typical.high_pct or 0.0)) > 3


def test_repeats_that_met_other_machines_are_no_change() -> None:
    found = compare(computed(met=MET, side=0), computed(met=MET_BESIDE_OTHERS, side=1))

    assert found.verdict.diagnosis == "UNDECIDED"


def test_repeats_whose_other_phases_got_faster_are_no_regression_of_the_one_that_did_not() -> None:
    found = compare(computed(met=MET, side=0), computed({"forward": 0.0}, met=MET, side=1, others=0.9))

    assert found.verdict.diagnosis in {"IMPROVEMENT", "UNDECIDED"}
    assert found.verdict.phase != "forward"


ALL_BUT_INPUT = {phase: 0.05 * ms for phase, ms in BASE_MS.items() if phase != "input"}


@pytest.mark.parametrize(("num", "num_slow"), [(num, slow) for num in (2, 3, 4, 5) for slow in (1, 2, 3) if slow < num])
def test_slow_runs_on_one_side_make_no_gain_of_the_one_phase_that_nobody_touched(num: int, num_slow: int) -> None:
    """All but input take 5 % longer; some runs before met a machine a quarter slower, or a tenth."""
    for times in (1.25, 1.1):
        met = tuple(times if at < num_slow else 1.0 + 0.002 * at for at in range(num))
        quiet = tuple(1.0 + 0.002 * at for at in range(num))
        before = computed(met=met, side=0)
        after = computed(ALL_BUT_INPUT, met=quiet, side=1)

        assert compare(before, after).verdict.diagnosis != "IMPROVEMENT"
        assert compare(after, before).verdict.diagnosis != "REGRESSION"


@pytest.mark.parametrize("seed", range(2, 12))
def test_a_phase_that_changed_against_the_drift_lowers_no_floor(seed: int) -> None:
    """The machine is 7 % faster after, and the optimizer takes a fifth longer."""
    after = slept({"optimizer": 0.2 * BASE_MS["optimizer"]}, longer=0.93, seed=seed)

    assert verdict_of(slept(), after)[1] not in {"input", "forward", "backward"}


@pytest.mark.parametrize("spared", PHASES)
@pytest.mark.parametrize("seed", range(2, 8))
def test_a_drift_that_spares_one_phase_is_no_change(spared: str, seed: int) -> None:
    more = {phase: 0.045 * ms for phase, ms in BASE_MS.items() if phase != spared}

    assert verdict_of(slept(), slept(more, seed=seed))[0] in {"UNDECIDED", "SAME"}
