"""Tests what is said of the work around the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import block_of, facts_of_steps, loader_info, numbered, rank_state, step_ms
from traceml.diagnosis.overhead import overhead_bound
from traceml.diagnosis.thresholds import LIMITS
from traceml.diagnosis.verdict import diagnose
from traceml.schema.bill import Shed
from traceml.schema.records import Fault

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts
    from traceml.diagnosis.finding import Finding
    from traceml.schema.records import StepRecord

TRAINS = step_ms(input=0.2, forward=8, backward=8, optimizer=4)
STARTS = step_ms(input=300, epoch_start=299, forward=5, backward=5)
GOES_ON = step_ms(input=0.1, forward=5, backward=5)


def judged(facts: Facts) -> Finding:
    found = overhead_bound(facts, LIMITS)
    assert found is not None
    return found


def test_work_between_steps_is_named_and_priced() -> None:
    facts = facts_of_steps([step_ms(input=0.2, between_steps=60, forward=12, backward=12, optimizer=6)] * 60)

    found = judged(facts)

    assert (found.severity, found.phases) == ("critical", ("between_steps",))
    assert found.summary == "67 % of the time passes between steps: 60.0 of 90.2 ms a step."
    assert "outside everything TraceML watches" in found.why
    assert "traceml.region" in found.next
    assert "wrap_dataloader" not in found.next


@pytest.mark.parametrize(
    ("step", "fires"),
    [
        (step_ms(in_step=20, forward=80), True),
        (step_ms(in_step=19.9, forward=80.1), False),  # the share
        (step_ms(in_step=0.5, forward=0.5), True),
        (step_ms(in_step=0.49, forward=0.5), False),  # the cost
        (step_ms(in_step=8, between_steps=7, gc=5, forward=80), True),  # all parts together
    ],
)
def test_overhead_fires_from_its_limits_on(step: StepRecord, fires: bool) -> None:
    assert (overhead_bound(facts_of_steps([step] * 40), LIMITS) is not None) == fires


@pytest.mark.parametrize("num_steps", [0, 7])
def test_without_enough_steps_nothing_is_said(num_steps: int) -> None:
    assert overhead_bound(facts_of_steps([step_ms(in_step=9, forward=1)] * num_steps), LIMITS) is None


def test_the_largest_part_is_named_and_its_price_is_the_price() -> None:
    found = judged(facts_of_steps([step_ms(in_step=8, between_steps=12, gc=5, forward=75)] * 40))

    assert found.phases == ("between_steps",)
    assert found.impact is not None
    assert found.impact.pct == pytest.approx(12)
    assert (found.severity, "also rest in the step 8 %, garbage collection 5 %" in found.why) == ("warning", True)


def test_evaluations_are_work_and_at_most_a_warning() -> None:
    evaluates = step_ms(input=0.2, forward=8, backward=8, optimizer=4, eval=112)

    found = judged(facts_of_steps(([TRAINS] * 9 + [evaluates]) * 10))

    assert (found.severity, found.phases) == ("warning", ("eval",))
    assert "most of it in 10 of 100 steps" in found.summary
    assert "it ran after 10 steady steps, 112 ms on average" in found.next


def test_checkpoints_are_work_and_at_most_a_warning() -> None:
    saves = step_ms(input=0.2, forward=8, backward=8, optimizer=4, checkpoint=200)

    found = judged(facts_of_steps(([TRAINS] * 19 + [saves]) * 5))

    assert (found.severity, found.phases) == ("warning", ("checkpoint",))
    assert found.next.endswith("5 steady steps saved, 200 ms on average")


def test_a_region_is_called_by_its_name() -> None:
    steps = [step_ms(input=0.2, forward=5, backward=5, regions={0: 10})] * 40

    found = judged(facts_of_steps(steps, state=rank_state(regions={0: "augment"})))

    assert found.phases == ("region:augment",)
    assert found.summary == "50 % of each step is in the region 'augment': 10.0 of 20.2 ms."


def test_a_regions_name_cannot_take_over_a_terminal() -> None:
    steps = [step_ms(forward=10, regions={0: 10})] * 40

    found = judged(facts_of_steps(steps, state=rank_state(regions={0: "a\x1b[2Jb"})))

    assert "\x1b" not in found.summary + found.why + found.next


def test_nested_regions_each_have_their_own_time() -> None:
    steps = [step_ms(forward=10, regions={0: 2, 1: 18})] * 40

    found = judged(facts_of_steps(steps, state=rank_state(regions={0: "outer", 1: "inner"})))

    assert found.phases == ("region:inner",)
    assert "also outer 7 %" in found.why


def test_a_region_that_is_called_like_a_part_is_still_a_region() -> None:
    steps = [step_ms(forward=10, regions={0: 10})] * 40

    found = judged(facts_of_steps(steps, state=rank_state(regions={0: "epoch start"})))

    assert found.summary.startswith("50 % of each step is in the region 'epoch start'")
    assert "workers" not in found.next


def test_collections_in_every_step_are_garbage_collection() -> None:
    found = judged(facts_of_steps([step_ms(forward=10, gc=6)] * 40))

    assert found.phases == ("gc",)
    assert "gc.freeze()" in found.next


def test_one_long_pause_is_never_said_of_each_step() -> None:
    steps = [step_ms(forward=5, backward=5, between_steps=0.05)] * 199
    pause = step_ms(forward=5, backward=5, between_steps=5000)

    found = judged(facts_of_steps([*steps[:100], pause, *steps[100:]]))

    assert "each step" not in found.summary
    assert "most of it in 1 of 200 steps" in found.summary
    assert found.impact is not None
    assert found.impact.pct == pytest.approx(71.4, abs=0.2)
    assert found.impact.low_ms < 1 < found.impact.high_ms


def test_workers_that_start_at_each_epoch_are_no_input_bound_run() -> None:
    steps = [GOES_ON] * 10 + ([STARTS] + [GOES_ON] * 25) * 3

    found = judged(facts_of_steps(steps, state=rank_state(loader=loader_info(2))))

    assert (found.phases, "the start of epochs" in found.summary) == (("input",), True)
    assert found.next == "persistent_workers=True: the start of an epoch takes 299 ms, as its workers start anew"
    assert found.impact is not None
    assert found.impact.ms == pytest.approx(3 * 299 / 88)


def test_kept_workers_are_not_told_to_be_kept() -> None:
    steps = [GOES_ON] * 10 + ([STARTS] + [GOES_ON] * 25) * 3

    found = judged(facts_of_steps(steps, state=rank_state(loader=loader_info(2, persistent_workers=True))))

    assert "persistent_workers" not in found.next


def test_short_epochs_whose_workers_start_anew_are_not_input_bound_however_many_steps_wait_a_little() -> None:
    first, later = (
        step_ms(input=600, epoch_start=590, forward=24, backward=24),
        step_ms(input=4, forward=24, backward=24),
    )
    found = judged(facts_of_steps([first, *[later] * 15] * 4))

    assert (found.diagnosis, found.phases) == ("OVERHEAD_BOUND", ("input",))
    assert "the start of epochs" in found.summary


def test_a_loader_that_is_slow_beside_its_epoch_starts_is_input_bound() -> None:
    first, later = (
        step_ms(input=600, epoch_start=590, forward=24, backward=24),
        step_ms(input=40, forward=24, backward=24),
    )

    facts = facts_of_steps([first, *[later] * 15] * 4)

    assert diagnose(facts).step_time[0].diagnosis == "INPUT_BOUND"


def test_a_stalled_loader_is_not_called_the_start_of_an_epoch() -> None:
    steps = [GOES_ON] * 100 + [step_ms(input=5000, forward=5, backward=5)] + [GOES_ON] * 99

    found = judged(facts_of_steps(steps, state=rank_state(loader=loader_info(2))))

    assert found.summary == "72 % of the time waits for data, most of it in 1 of 200 steps: 5,020 of 7,020 ms."
    assert "stalled" in found.next


def test_waits_beside_the_starts_of_epochs_are_priced_without_them() -> None:
    stall = step_ms(input=2000, forward=5, backward=5)
    steps = [GOES_ON] * 50 + [STARTS] + [GOES_ON] * 50 + [stall] + [GOES_ON] * 98

    found = judged(facts_of_steps(steps, state=rank_state(loader=loader_info(2))))

    assert found.impact is not None
    assert found.impact.ms == pytest.approx((2000 + 1 + 198 * 0.1) / 200)
    assert "also epoch start" in found.why


def test_input_that_is_input_bound_is_no_overhead() -> None:
    assert overhead_bound(facts_of_steps([step_ms(input=50, forward=50)] * 40), LIMITS) is None


def test_batches_made_by_hand_are_outside_of_what_is_watched() -> None:
    found = judged(facts_of_steps([step_ms(between_steps=20, forward=6, backward=12, optimizer=2)] * 30))

    assert found.phases == ("between_steps",)
    assert "no training loader was seen" in found.why
    assert "batches made by hand" in found.next
    assert "traceml.wrap_dataloader" in found.next


def test_a_teacher_that_trace_step_does_not_know_is_the_rest_in_the_step() -> None:
    found = judged(facts_of_steps([step_ms(in_step=20, forward=10, backward=8, optimizer=2)] * 30))

    assert found.phases == ("in_step",)
    assert "every model" in found.next


def test_recompilations_that_blocks_hold_are_named() -> None:
    steps = numbered([step_ms(forward=10)] * 40 + [step_ms(forward=10, compile=30)] * 40)

    found = judged(facts_of_steps([*steps[:40], block_of(steps[40:])]))

    assert found.phases == ("compile",)
    assert "TORCH_LOGS=recompiles" in found.next


def test_a_rest_that_may_hold_the_forward_is_no_red_and_says_so() -> None:
    found = judged(facts_of_steps([step_ms(input=1, in_step=50, backward=40, optimizer=9)] * 40))

    assert found.severity == "warning"
    assert "never seen: forward, whose time is then in the rests" in found.why
    assert "no forward of it was seen" in found.next


def test_where_a_fault_of_ours_ended_the_watching_nothing_in_the_script_is_blamed() -> None:
    state = replace(rank_state(), faults=(Fault("input", "RuntimeError: no sizes", 3, is_off=True),))
    steps = numbered([step_ms(input=60, forward=30)] * 3 + [step_ms(between_steps=60, forward=30)] * 60)

    found = judged(facts_of_steps(steps, state=state))

    assert found.severity == "info"
    assert "input: not watched any more after a fault of ours" in found.why
    assert "traceml.region" not in found.next
    assert found.impact is None


def test_a_rest_with_collections_that_are_not_watched_any_more_says_so() -> None:
    given_up = Shed(signal="gc", step=460, at_ns=0, us_per_step=900.0, pct=18.0, signal_us=800.0)
    state = replace(rank_state(), shed=(given_up,))

    found = judged(facts_of_steps([step_ms(in_step=60, forward=10, backward=10, optimizer=5)] * 60, state=state))

    assert "garbage collections are in it since step 460" in found.why


def test_a_phase_that_cannot_be_seen_here_is_named_with_the_reason() -> None:
    state = replace(rank_state(), unwatched={"forward": "needs torch 2.1"})

    found = judged(facts_of_steps([step_ms(input=1, in_step=50, backward=40, optimizer=9)] * 40, state=state))

    assert "never seen: forward (needs torch 2.1)" in found.why
    assert "no forward of it was seen" not in found.next


@pytest.mark.parametrize(
    ("name", "shown"), [("forward", "forward"), ("", '""'), ("y" * 300, "y" * 20 + "…" + "y" * 19)]
)
def test_a_region_of_any_name_is_called_by_it_in_a_sentence_of_sane_length(name: str, shown: str) -> None:
    steps = [step_ms(forward=10, regions={0: 90})] * 40

    found = overhead_bound(facts_of_steps(steps, state=rank_state(regions={0: name})), LIMITS)

    assert found is not None
    assert f"is in the region '{shown}'" in found.summary
    assert f"make '{shown}' cheaper" in found.next


def test_one_long_step_is_no_critical_cause_whatever_its_share() -> None:
    steps = numbered([TRAINS] * 50 + [step_ms(input=0.2, between_steps=3000, forward=8, backward=8)] + [TRAINS] * 50)

    found = judged(facts_of_steps(steps))

    assert found.impact is not None
    assert found.impact.pct > 30
    assert found.impact.low_ms == 0
    assert found.severity == "warning"
