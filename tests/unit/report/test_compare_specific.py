"""Tests the change of one phase of a pair, told by what the other phases share."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit.report.compared_runs import BASE_MS, QUIET, run_of
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
