"""Holds the step builder to design section 3: exclusive time, whose fetch it was, startup and tail, failures, gaps."""

from __future__ import annotations

from typing import Optional

import pytest

from tests.edge_script import EdgeScript, started_builder
from traceml.schema import phases
from traceml.schema.records import LoaderInfo, RegionName, StepFailure, StepRecord
from traceml.wire import edges

MS = 1_000_000


def ms(record: StepRecord, phase: str) -> Optional[float]:
    found = record.phase_ns[phases.PHASE_INDEX[phase]]
    return None if found is None else round(found / MS, 3)


def loop(script: EdgeScript, num_steps: int, *, wait: float = 20) -> EdgeScript:
    for _ in range(num_steps):
        script.fetch(wait).step()
    return script


def test_a_plain_loop_divides_into_what_happened() -> None:
    steps = loop(EdgeScript().iterator(), 3).steps()

    assert [ms(steps[1], phase) for phase in ("input", "forward", "backward", "optimizer")] == [20, 3, 5, 2]
    assert steps[1].period_ns == pytest.approx(30 * MS, abs=10)


def test_what_was_never_seen_is_none_and_not_zero() -> None:
    steps = EdgeScript().begin().phase(edges.FORWARD, 3).end().steps()

    assert ms(steps[0], "input") is None
    assert ms(steps[0], "backward") is None
    assert ms(steps[0], "in_step") == 0


def test_time_between_the_steps_is_in_the_period() -> None:
    script = EdgeScript().iterator()
    for _ in range(3):
        script.fetch(1).step().wait(60)

    assert ms(script.fetch(1).step().steps()[2], "between_steps") == 60


def test_a_nested_phase_is_taken_out_of_the_one_around_it() -> None:
    script = EdgeScript().iterator().fetch(1).begin().edge(edges.OPTIMIZER).wait(1)
    script.phase(edges.FORWARD, 4).phase(edges.BACKWARD, 8).wait(1).edge(edges.OPTIMIZER + edges.CLOSE).end()

    step = script.steps()[0]

    assert [ms(step, phase) for phase in ("forward", "backward", "optimizer")] == [4, 8, 2]
    assert step.num_optimizer_steps == 1


def test_a_collection_inside_backward_is_not_backward() -> None:
    script = EdgeScript().begin().edge(edges.BACKWARD).wait(2).phase(edges.GC, 7).wait(1)

    step = script.edge(edges.BACKWARD + edges.CLOSE).end().steps()[0]

    assert (ms(step, "backward"), ms(step, "gc")) == (3, 7)


def test_a_collection_that_interrupted_an_edges_stamp_keeps_its_time() -> None:
    script = EdgeScript().begin()
    opened = len(script.codes)
    script.edge(edges.FORWARD).wait(1)  # reserved first ...
    script.phase(edges.GC, 7)
    script.stamps[opened] = script.now  # ... stamped only after the collection
    script.wait(3).edge(edges.FORWARD + edges.CLOSE).end()

    step = script.steps()[0]

    assert (ms(step, "gc"), ms(step, "forward"), ms(step, "in_step")) == (7, 3, 1)


def test_the_last_next_delivers_nothing_and_is_the_rests() -> None:
    script = loop(EdgeScript().iterator(), 3).exhaust(25)
    script.iterator(epoch=2).fetch(20).step()

    steps = script.steps()

    assert (ms(steps[3], "input"), ms(steps[3], "between_steps")) == (20, 25)


def test_batches_looked_at_before_training_are_startup() -> None:
    script = EdgeScript().iterator().fetch(30).fetch(30).wait(5)
    loop(script.iterator(epoch=2), 3)

    _, taken, _ = script.built()

    startup = taken.segments[0]
    assert startup.kind == "startup"
    assert startup.duration_ns == pytest.approx((1000 + 65) * MS, abs=100)
    assert ms(taken.steps[0], "input") == 20


def test_an_evaluation_between_steps_is_not_the_loops_input() -> None:
    script = loop(EdgeScript().iterator(loader=1), 4)
    script.iterator(loader=2)
    for _ in range(3):
        script.fetch(50).phase(edges.EVAL, 4)
    script.exhaust(1).switch(loader=1)

    step = loop(script, 1).steps()[4]

    assert (ms(step, "input"), ms(step, "eval"), ms(step, "between_steps")) == (20, 162, 1)


def test_an_evaluation_with_a_model_we_do_not_see_is_eval_too() -> None:
    script = loop(EdgeScript().iterator(loader=1), 4)
    script.iterator(loader=2).fetch(50).wait(4).fetch(50).wait(4).exhaust(0).switch(loader=1)

    steps = loop(script, 3).steps()

    assert (ms(steps[4], "input"), ms(steps[4], "eval"), ms(steps[4], "between_steps")) == (20, 100, 8)
    assert len(steps) == 7


def test_an_evaluation_inside_the_step_is_eval_and_not_forward() -> None:
    script = EdgeScript().iterator(loader=1)
    for _ in range(3):
        script.switch(loader=1).fetch(20).begin().work()
        script.iterator(loader=2).fetch(9).phase(edges.FORWARD_NO_GRAD, 4).fetch(9).phase(
            edges.FORWARD_NO_GRAD, 4
        ).end()

    step = script.steps()[1]

    assert (ms(step, "input"), ms(step, "eval"), ms(step, "forward")) == (20, 26, 3)


def test_a_teacher_without_gradients_is_forward() -> None:
    script = EdgeScript().iterator()
    for _ in range(3):
        script.fetch(20).begin().phase(edges.FORWARD_NO_GRAD, 4).work().end()

    step = script.steps()[1]

    assert (ms(step, "input"), ms(step, "forward"), ms(step, "eval")) == (20, 7, None)


def test_two_zipped_loaders_are_both_the_loops() -> None:
    script = EdgeScript().iterator(loader=1).iterator(loader=2)
    for _ in range(4):
        script.switch(loader=1).fetch(10).switch(loader=2).fetch(15).step()

    steps = script.steps()

    assert [ms(step, "input") for step in steps[1:]] == [25, 25, 25]
    assert [step.num_micro_batches for step in steps[1:]] == [1, 1, 1]


def test_a_trainer_that_fetches_all_micro_batches_first_has_only_training_fetches() -> None:
    script = EdgeScript().iterator()
    for _ in range(3):
        script.fetch(5).fetch(5).fetch(5).begin().work().work().work().end()

    steps = script.steps()

    assert [ms(step, "input") for step in steps] == [15, 15, 15]
    assert [step.num_micro_batches for step in steps] == [3, 3, 3]


def test_accumulation_counts_micro_batches_and_optimizer_steps() -> None:
    script = EdgeScript().iterator()
    for _ in range(3):
        script.begin()
        for _ in range(4):
            script.fetch(2).phase(edges.FORWARD, 3).phase(edges.BACKWARD, 5)
        script.phase(edges.OPTIMIZER, 2).end()

    step = script.steps()[2]

    assert (step.num_micro_batches, step.num_optimizer_steps, ms(step, "input")) == (4, 1, 8)


def test_a_batch_that_is_fetched_one_step_ahead_waits_in_the_period_it_was_fetched_in() -> None:
    script = EdgeScript().iterator().fetch(20)
    for _ in range(4):
        script.begin().work().fetch(20).end()

    steps = script.steps()

    assert [ms(step, "input") for step in steps[:3]] == [40, 20, 20]


def test_a_model_that_is_never_seen_still_has_a_training_loader() -> None:
    script = EdgeScript().iterator()
    for _ in range(3):
        script.fetch(20).begin().wait(3).phase(edges.BACKWARD, 5).end()

    steps = script.steps()

    assert [ms(step, "input") for step in steps] == [20, 20, 20]
    assert ms(steps[0], "forward") is None


def test_a_step_that_is_skipped_keeps_its_fetch() -> None:
    script = loop(EdgeScript().iterator(), 3)
    script.fetch(20).begin().end().fetch(20).begin().end().fetch(20).begin().end()

    steps = loop(script, 1).steps()

    assert [ms(step, "input") for step in steps] == [20] * 7


def test_a_step_that_raises_is_kept_and_names_the_open_phase() -> None:
    script = loop(EdgeScript().iterator(), 2).fetch(20).begin().edge(edges.FORWARD).wait(3)
    script.edge(edges.RAISED).edge(edges.FORWARD + edges.CLOSE).end(failed=True)
    script.fetch(20).begin().work().wait(1).end(failed=True)

    builder = started_builder()
    builder.learn(StepFailure(3, "ValueError"))
    builder.feed(loop(script, 2).batch())
    taken = builder.take()

    assert [step.failed_in for step in taken.steps] == [None, None, "forward", "in_step", None, None]
    assert [event.text for event in taken.events] == ["ValueError in forward", "in rest in the step"]


def test_an_optimizer_that_raised_lost_its_close_and_is_closed_by_the_step() -> None:
    script = loop(EdgeScript().iterator(), 2).fetch(20).begin().edge(edges.OPTIMIZER).wait(4).end(failed=True)

    steps = loop(script, 1).steps()

    assert (steps[2].failed_in, ms(steps[2], "optimizer")) == ("optimizer", 4)
    assert ms(steps[3], "optimizer") == 2


def test_regions_have_the_users_names_and_are_exclusive() -> None:
    script = EdgeScript().begin().edge(edges.FIRST_REGION).wait(2).phase(edges.FORWARD, 3)
    script.edge(edges.FIRST_REGION + edges.CLOSE).end()
    builder = started_builder()
    builder.learn(RegionName(0, "augment"))
    builder.feed(script.batch())

    record = builder.take().steps[0]

    assert [(number, round(ns / MS)) for number, ns in record.region_ns] == [(0, 2)]
    assert builder.state.regions == {0: "augment"}


def test_the_tail_is_what_comes_after_the_last_step() -> None:
    _, _, rest = loop(EdgeScript().iterator(), 3).exhaust(10).phase(edges.CHECKPOINT, 40).built(tail_ms=5)

    tail = rest.segments[-1]

    assert (tail.kind, round(tail.duration_ns / MS)) == ("tail", 55)
    assert tail.phase_ns[phases.PHASE_INDEX["checkpoint"]] == pytest.approx(40 * MS, abs=10)


def test_a_run_without_a_step_is_all_startup() -> None:
    _, taken, rest = EdgeScript().iterator().fetch(20).built(tail_ms=30)

    assert (taken.steps, rest.steps) == ((), ())
    assert [(s.kind, round(s.duration_ns / MS)) for s in rest.segments] == [("startup", 1050)]


def test_startup_steps_and_tail_are_the_whole_run() -> None:
    script = loop(EdgeScript().wait(7).iterator(ms=3), 5).wait(2).exhaust(1)
    _, taken, rest = script.built(tail_ms=4)

    total = sum(s.duration_ns for s in (*taken.segments, *rest.segments))
    total += sum(step.period_ns for step in (*taken.steps, *rest.steps))

    assert total == pytest.approx((1000 + 7 + 3 + 150 + 2 + 1 + 4) * MS, abs=1000)


def test_samples_come_from_the_loaders_batch_size_with_a_short_last_batch() -> None:
    script = loop(EdgeScript().iterator(), 3)
    builder = started_builder()
    builder.learn(LoaderInfo(1, num_workers=0, batch_size=4, num_samples=10, drop_last=False))
    builder.feed(script.batch())

    assert [step.num_samples for step in builder.take().steps] == [4, 4, 2]


def test_what_is_counted_by_hand_replaces_what_is_inferred() -> None:
    script = EdgeScript().iterator()
    for _ in range(2):
        script.fetch(1).begin().value(edges.COUNTED_SAMPLES, 7).value(edges.COUNTED_SAMPLES, 3).work().end()
    builder = started_builder()
    builder.learn(LoaderInfo(1, batch_size=4))
    builder.feed(script.batch())

    assert [step.num_samples for step in builder.take().steps] == [10, 10]


def test_workers_that_start_at_an_epoch_are_told_apart_from_the_usual_wait() -> None:
    script = loop(EdgeScript().iterator(), 8, wait=2).exhaust(0)
    script.iterator(epoch=2, ms=80).fetch(50).step()

    step = script.steps()[8]

    assert (ms(step, "input"), round(step.epoch_start_ns / MS)) == (130, 128)


def test_a_gap_costs_the_steps_in_it_and_says_how_many() -> None:
    script = EdgeScript().iterator()
    for number in range(20):
        script.fetch(2).begin().work().end(numbered=number % 5 == 4)
    cut = [i for i, code in enumerate(script.codes) if code == edges.STEP_END][7]
    builder = started_builder()
    builder.feed(script.batch(0, 25))
    before = builder.take()

    builder.feed(script.batch(cut, num_lost=cut - 25))
    after = builder.take()

    numbers = [step.step for step in (*before.steps, *after.steps)]
    assert numbers[-1] == 20
    assert after.steps[0].step == 11
    assert builder.state.num_lost_steps == 20 - len(numbers)


def test_the_live_slot_says_what_is_open_and_since_when() -> None:
    script = loop(EdgeScript().iterator(), 3)
    published = len(script.codes)
    script.wait(3).edge(edges.INPUT)
    builder = started_builder()
    builder.feed(script.batch(0, published))

    slot = builder.live(script.batch(published), now_ns=int(script.now * 1e9), alive=True)

    assert (slot.step, slot.phase, slot.since_ns) == (4, "input", int(script.now * 1e9))


def test_a_slot_that_was_never_filled_costs_nobody_anything() -> None:
    script = loop(EdgeScript().iterator(), 2)
    script.codes.append(edges.NEVER)
    script.stamps.append(0.0)
    script.codes.append(edges.BACKWARD)  # an edge of the last lap
    script.stamps.append(50.0)

    steps = loop(script, 2).steps()

    assert [ms(step, "backward") for step in steps] == [5, 5, 5, 5]
    assert [ms(step, "input") for step in steps] == [20, 20, 20, 20]


def test_a_value_that_is_no_number_is_passed_over() -> None:
    script = EdgeScript().iterator()
    for odd in (float("nan"), float("inf"), -3.0, 1e300):
        script.fetch(2).begin().value(edges.COUNTED_SAMPLES, odd).value(edges.SERIAL, odd).work().end()

    steps = script.steps()

    assert [step.num_samples for step in steps] == [None] * 4
    assert [ms(step, "input") for step in steps] == [2] * 4


def test_a_batch_that_is_not_looked_into_holds_what_its_loader_usually_gives() -> None:
    script = EdgeScript().iterator()
    for size in (8, None, None, 5, None, 0):
        script.fetch(1)
        if size is not None:
            script.value(edges.SAMPLES, size)
        script.step()
    builder = started_builder()
    builder.learn(LoaderInfo(1, usual_samples=8))
    builder.feed(script.batch())

    assert [step.num_samples for step in builder.take().steps] == [8, 8, 8, 5, 8, 0]


def test_a_step_that_is_given_batches_by_two_loaders_has_the_samples_of_both() -> None:
    script = EdgeScript().iterator(1).iterator(2)
    for _ in range(4):
        script.switch(1).fetch(1).value(edges.SAMPLES, 16).switch(2).fetch(1).value(edges.SAMPLES, 48).step()

    assert [step.num_samples for step in script.steps()][1:] == [64, 64, 64]
