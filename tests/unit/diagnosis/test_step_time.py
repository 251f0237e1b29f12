"""Tests the rules of step time: each fires, stays quiet just below its limits, and without data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import facts_of_steps, loader_info, rank_state, step_ms
from traceml.analysis.facts import Ending
from traceml.diagnosis.step_time import balanced, compute_bound, input_bound, insufficient_data
from traceml.diagnosis.thresholds import LIMITS
from traceml.diagnosis.verdict import diagnose

if TYPE_CHECKING:
    from traceml.schema.records import StepRecord

WAITS = step_ms(input=35.6, forward=21.1, backward=14.6, optimizer=3.2, in_step=6.5)
COMPUTES = step_ms(input=1, forward=30, backward=50, optimizer=19)


def test_a_run_that_mostly_waits_for_data_is_input_bound() -> None:
    facts = facts_of_steps([WAITS] * 40, state=rank_state(loader=loader_info(0)))

    found = input_bound(facts, LIMITS)

    assert found is not None
    assert (found.diagnosis, found.severity, found.phases) == ("INPUT_BOUND", "critical", ("input",))
    assert found.summary == "44 % of each step waits for data: 35.6 of 81.0 ms."
    assert found.why == "input 35.6 of 81.0 ms a step; the loader has num_workers=0, batch 64"
    assert found.impact is not None
    assert found.impact.pct == pytest.approx(43.95, abs=0.01)
    assert found.impact.speedup == pytest.approx(81 / 45.4, abs=0.01)


@pytest.mark.parametrize(
    ("step", "fires"),
    [
        (step_ms(input=10, forward=90), True),
        (step_ms(input=9.9, forward=90.1), False),  # the share
        (step_ms(input=0.5, forward=0.5), True),
        (step_ms(input=0.49, forward=0.5), False),  # the cost
    ],
)
def test_input_fires_from_its_limits_on(step: StepRecord, fires: bool) -> None:
    assert (input_bound(facts_of_steps([step] * 40), LIMITS) is not None) == fires


@pytest.mark.parametrize(("num_waiting", "fires"), [(20, True), (19, False)])
def test_input_fires_when_a_fifth_of_the_steps_wait(num_waiting: int, fires: bool) -> None:
    waiting = [step_ms(input=100, forward=10) if i * num_waiting % 100 < num_waiting else None for i in range(1, 101)]
    steps = [step or step_ms(input=0.01, forward=10) for step in waiting]

    assert (input_bound(facts_of_steps(steps), LIMITS) is not None) == fires


@pytest.mark.parametrize(("usual_ms", "fires"), [(5.4, True), (4.8, False)])
def test_a_wait_is_at_least_a_twentieth_of_a_typical_step(usual_ms: float, fires: bool) -> None:
    usual, long = step_ms(input=usual_ms, forward=100 - usual_ms), step_ms(input=500, forward=50)

    facts = facts_of_steps(([usual] * 9 + [long]) * 10)

    assert (input_bound(facts, LIMITS) is not None) == fires


def test_a_run_without_a_training_loader_is_never_input_bound() -> None:
    facts = facts_of_steps([step_ms(between_steps=50, forward=50)] * 40)

    assert input_bound(facts, LIMITS) is None


def test_one_slow_worker_of_three_is_input_bound_and_not_in_each_step() -> None:
    ready, late = step_ms(input=0.05, forward=10), step_ms(input=40, forward=10)
    facts = facts_of_steps([ready, ready, late] * 60, state=rank_state(loader=loader_info(3)))

    found = input_bound(facts, LIMITS)

    assert found is not None
    assert found.summary == "57 % of the time waits for data, most of it in 60 of 180 steps: 2,406 of 4,206 ms."


def test_five_second_steps_are_judged_as_any_other() -> None:
    found = input_bound(facts_of_steps([step_ms(input=2500, forward=2500)] * 20), LIMITS)

    assert found is not None
    assert (found.severity, found.summary) == ("critical", "50 % of each step waits for data: 2,500 of 5,000 ms.")


@pytest.mark.parametrize(("num_steps", "severity"), [(20, "critical"), (19, "warning")])
def test_red_needs_20_steady_steps(num_steps: int, severity: str) -> None:
    found = input_bound(facts_of_steps([WAITS] * num_steps), LIMITS)

    assert found is not None
    assert found.severity == severity


@pytest.mark.parametrize(("input_ms", "severity"), [(30, "critical"), (29, "warning"), (10, "warning")])
def test_the_price_makes_the_severity(input_ms: float, severity: str) -> None:
    found = input_bound(facts_of_steps([step_ms(input=input_ms, forward=100 - input_ms)] * 40), LIMITS)

    assert found is not None
    assert found.severity == severity


def test_beside_a_device_the_hosts_clock_is_said_and_never_red() -> None:
    found = input_bound(facts_of_steps([WAITS] * 40, state=rank_state(device="cuda:0")), LIMITS)

    assert found is not None
    assert found.severity == "warning"
    assert "host clock" in found.why


def test_the_devices_clock_needs_no_such_word() -> None:
    found = input_bound(facts_of_steps([WAITS] * 40, state=rank_state(device="cuda:0"), clock="device"), LIMITS)

    assert found is not None
    assert (found.severity, "host clock" in found.why) == ("critical", False)


def test_a_run_of_nothing_but_waiting_has_a_finite_speedup() -> None:
    found = input_bound(facts_of_steps([step_ms(input=10)] * 40), LIMITS)

    assert found is not None
    assert found.impact is not None
    assert found.impact.speedup == pytest.approx(1000)


def test_a_run_of_the_models_own_work_is_compute_bound() -> None:
    found = compute_bound(facts_of_steps([COMPUTES] * 60), LIMITS)

    assert found is not None
    assert (found.severity, found.impact) == ("info", None)
    assert found.summary == "99 % of the time is the model's own work: forward 30 %, backward 50 %, optimizer 19 %."
    assert "the largest other part is input 1 %" in found.why
    assert "active=3" in found.next


@pytest.mark.parametrize(("other_ms", "fires"), [(30, True), (30.1, False)])
def test_compute_fires_from_70_percent_on(other_ms: float, fires: bool) -> None:
    facts = facts_of_steps([step_ms(forward=40, backward=30, sync=other_ms)] * 40)

    assert (compute_bound(facts, LIMITS) is not None) == fires


def test_nearly_all_is_not_rounded_to_all() -> None:
    found = compute_bound(facts_of_steps([step_ms(input=0.2, forward=99.8)] * 40), LIMITS)

    assert found is not None
    assert found.summary.startswith("Over 99 % of the time")


def test_a_compute_bound_run_without_a_loader_says_that_input_was_not_measured() -> None:
    found = compute_bound(facts_of_steps([step_ms(forward=30, backward=60)] * 60), LIMITS)

    assert found is not None
    assert "no training loader was seen" in found.why


def test_a_run_without_one_large_part_is_balanced() -> None:
    facts = facts_of_steps(
        [step_ms(input=9, between_steps=10, in_step=8, sync=9, optimizer=1, forward=40, backward=23)] * 40
    )

    found = balanced(facts, LIMITS)

    assert found is not None
    assert (found.summary, found.severity) == ("No single cause is worth a look.", "info")
    assert found.why.startswith("forward 40 %, backward 23 %, between steps 10 %")
    assert diagnose(facts).step_time == (found,)


def test_steps_of_50_microseconds_are_called_too_short_and_not_well_balanced() -> None:
    facts = facts_of_steps([step_ms(input=0.03, forward=0.01, in_step=0.01)] * 200)

    (found,) = diagnose(facts).step_time

    assert found.diagnosis == "BALANCED"
    assert found.summary == "Steps of 0.0500 ms are too short to name a cause: none costs 0.500 ms a step."


def test_a_large_part_that_no_rule_judges_is_not_called_nothing() -> None:
    found = balanced(facts_of_steps([step_ms(sync=50, forward=40, in_step=10)] * 40), LIMITS)

    assert found is not None
    assert found.summary == "No cause that is judged is worth a look; waiting for ranks takes 50 % of the time."
    assert "not needed" not in found.next


@pytest.mark.parametrize("rule", [input_bound, compute_bound, balanced])
@pytest.mark.parametrize("num_steps", [0, 7])
def test_without_enough_steps_no_rule_of_step_time_speaks(rule: object, num_steps: int) -> None:
    facts = facts_of_steps([WAITS] * num_steps)

    assert callable(rule)
    assert rule(facts, LIMITS) is None


def test_three_steps_are_not_enough_and_the_missing_ones_are_counted() -> None:
    (found,) = diagnose(facts_of_steps([WAITS] * 3)).step_time

    assert (found.diagnosis, found.severity, found.impact) == ("INSUFFICIENT_DATA", "info", None)
    assert found.summary == "3 of 8 steady steps seen."
    assert found.next == "run at least 5 more steps"


def test_warm_up_and_failed_steps_are_named_as_the_reason() -> None:
    steps = [step_ms(forward=500)] * 2 + [step_ms(forward=1, failed_in="forward")] * 2 + [COMPUTES] * 6

    found = insufficient_data(facts_of_steps(steps), LIMITS)

    assert found is not None
    assert found.why == "10 finished: 2 warm-up, 2 failed, 6 steady"


def test_eight_steady_steps_are_enough() -> None:
    assert insufficient_data(facts_of_steps([WAITS] * 8), LIMITS) is None


def test_several_ranks_need_20_steps() -> None:
    few = facts_of_steps([WAITS] * 19, world_size=4)
    enough = facts_of_steps([WAITS] * 20, world_size=4)

    found = insufficient_data(few, LIMITS)

    assert found is not None
    assert found.summary == "19 of 20 steady steps seen."
    assert insufficient_data(enough, LIMITS) is None


def test_without_a_single_step_trace_step_is_what_to_add() -> None:
    found = insufficient_data(facts_of_steps([]), LIMITS)

    assert found is not None
    assert found.summary == "No step was seen."
    assert "traceml.trace_step(model)" in found.next


def test_a_run_whose_steps_all_failed_points_at_the_exception() -> None:
    found = insufficient_data(facts_of_steps([step_ms(forward=1, failed_in="forward")] * 30), LIMITS)

    assert found is not None
    assert "raised" in found.next


def test_inferred_steps_that_cannot_be_trusted_get_no_verdict() -> None:
    facts = replace(facts_of_steps([WAITS] * 40), inferred=True, unsure="two optimizers step in turn")

    (found,) = diagnose(facts).step_time

    assert found.diagnosis == "INSUFFICIENT_DATA"
    assert found.summary == "No step verdict: two optimizers step in turn."


def test_steps_of_no_time_at_all_get_no_verdict() -> None:
    (found,) = diagnose(facts_of_steps([step_ms()] * 30)).step_time

    assert found.diagnosis == "INSUFFICIENT_DATA"
    assert "no measurable time" in found.summary


@pytest.mark.parametrize(
    ("ending", "summary", "action"),
    [
        (
            Ending("failed with SyntaxError", has_failed=True, exception="SyntaxError"),
            "The run failed with SyntaxError before its first step.",
            "look at the SyntaxError that ended the script",
        ),
        (
            Ending("failed with exit code 3", has_failed=True),
            "The run failed with exit code 3 before its first step.",
            "look at what the script printed at its end",
        ),
        (
            Ending("killed by SIGTERM"),
            "The run was killed by SIGTERM before its first step.",
            "let the script come to its first step",
        ),
    ],
)
def test_a_run_that_was_over_before_its_first_step_says_how_it_ended(ending: Ending, summary: str, action: str) -> None:
    found = insufficient_data(facts_of_steps([], ending=ending), LIMITS)

    assert found is not None
    assert (found.summary, found.next) == (summary, action)


def test_a_run_that_goes_on_without_a_step_says_what_is_awaited_and_never_that_there_was_none() -> None:
    found = insufficient_data(facts_of_steps([], ending=Ending(is_running=True)), LIMITS)

    assert found is not None
    assert found.summary == "No finished step has been read yet."
    assert found.next == "wait for the first step to end"


def test_a_run_that_failed_after_a_few_steps_points_at_its_error_first() -> None:
    ending = Ending("failed with ValueError", has_failed=True, exception="ValueError")

    found = insufficient_data(facts_of_steps([WAITS] * 3, ending=ending), LIMITS)

    assert found is not None
    assert found.next == "look at the ValueError that ended the script; 5 more steps give a verdict"
