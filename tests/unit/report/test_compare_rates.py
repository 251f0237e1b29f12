"""Holds the verdict to its error rates, on simulated runs with noise, outliers, drift and autocorrelation."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Optional, Sequence

import pytest

from tests.unit.report.compared_runs import BUSY, QUIET, run_of, slower, wandering, with_outliers
from traceml.report.compare.comparison import compare

NUM_STEPS = 200
Factors = Callable[[int], Sequence[float]]


def outliers(seed: int) -> Sequence[float]:
    return with_outliers(NUM_STEPS, share=0.03, times=5.0, seed=seed)


def waves(seed: int) -> Sequence[float]:
    """Correlated over some 20 steps."""
    return wandering(NUM_STEPS, size=0.04, memory=0.95, seed=seed)


def drift(seed: int) -> Sequence[float]:
    """Correlated over most of the run, as a machine that warms up."""
    return wandering(NUM_STEPS, size=0.04, memory=0.99, seed=seed)


def verdicts(
    num: int,
    *,
    change: float = 0.0,
    noise: float = 0.02,
    factors: Optional[Factors] = None,
    repeats: int = 1,
    is_busy: bool = False,
) -> Counter[str]:
    """How often each verdict is given for pairs (or groups) whose second side takes `change` longer, in backward."""
    found: Counter[str] = Counter()
    for at in range(num):
        sides = [
            [
                run_of(
                    slower("backward", change * 20 * side),
                    noise=noise,
                    seed=(at * repeats + repeat) * 2 + side,
                    num_steps=NUM_STEPS,
                    factors=factors((at * repeats + repeat) * 2 + side + 10_000) if factors else None,
                    beside=BUSY if is_busy else QUIET,
                    started_at=f"2027-01-15T08:{2 * repeat + side:02d}:00+00:00",
                )
                for repeat in range(repeats)
            ]
            for side in (0, 1)
        ]
        verdict = compare(sides[0], sides[1]).verdict
        found[verdict.diagnosis] += 1
        found["named"] += verdict.diagnosis == "REGRESSION" and verdict.phase == "backward"
    return found


def wrong(found: Counter[str]) -> int:
    return found["REGRESSION"] + found["IMPROVEMENT"] + found["MIXED"]


def test_of_100_identical_pairs_at_most_1_is_called_a_change() -> None:
    assert wrong(verdicts(100)) <= 1


@pytest.mark.parametrize("factors", [outliers, waves])
def test_of_40_identical_pairs_with_outliers_or_waves_at_most_1_is_called_a_change(factors: Factors) -> None:
    assert wrong(verdicts(40, factors=factors)) <= 1


def test_of_60_identical_pairs_that_drift_within_the_run_at_most_6_are_called_a_change() -> None:
    # Four quarters tell a drift that takes half the run badly; slower ones no single pair can know.
    assert wrong(verdicts(60, factors=drift)) <= 6


@pytest.mark.parametrize("factors", [None, waves, drift])
def test_of_30_identical_pairs_on_a_busy_machine_at_most_1_is_called_a_change(factors: Optional[Factors]) -> None:
    assert wrong(verdicts(30, noise=0.1, factors=factors, is_busy=True)) <= 1


@pytest.mark.parametrize("factors", [None, outliers])
def test_5_percent_in_one_phase_is_found_and_the_phase_named(factors: Optional[Factors]) -> None:
    found = verdicts(30, change=0.05, factors=factors)

    assert found["REGRESSION"] >= 27
    assert found["named"] >= 27


@pytest.mark.parametrize("factors", [waves, drift])
@pytest.mark.parametrize("is_busy", [False, True])
def test_5_percent_is_never_called_the_same_or_an_improvement(factors: Factors, *, is_busy: bool) -> None:
    found = verdicts(20, change=0.05, noise=0.1, factors=factors, is_busy=is_busy)

    assert found["SAME"] + found["IMPROVEMENT"] == 0


@pytest.mark.parametrize("factors", [waves, drift])
def test_five_repeats_a_side_find_10_percent(factors: Factors) -> None:
    found = verdicts(10, change=0.10, noise=0.1, factors=factors, repeats=5, is_busy=True)

    assert found["REGRESSION"] >= 9


@pytest.mark.parametrize("repeats", [3, 5])
def test_repeats_of_one_script_are_seldom_called_a_change(repeats: int) -> None:
    found = verdicts(20, noise=0.1, factors=drift, repeats=repeats, is_busy=True)

    assert wrong(found) <= 2  # a 95 % interval leaves the truth out in one of 20
