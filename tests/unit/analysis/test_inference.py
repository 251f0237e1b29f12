"""Holds inferred steps to what a reader of the loop would call a step, or to saying that it is unsure."""

from __future__ import annotations

from typing import Callable, Optional

import pytest

from tests.edge_script import EdgeScript
from traceml.analysis.steps import StepBuilder
from traceml.schema import phases
from traceml.schema.records import Segment, StepRecord
from traceml.wire import edges

MS = 1_000_000


def ms(record: StepRecord | Segment, phase: str) -> Optional[float]:
    found = record.phase_ns[phases.PHASE_INDEX[phase]]
    return None if found is None else round(found / MS, 3)


def inferred(script: EdgeScript) -> tuple[StepBuilder, list[StepRecord], list[Segment]]:
    builder, taken, rest = script.built(tail_ms=1)
    steps, segments = [*taken.steps, *rest.steps], [*taken.segments, *rest.segments]
    for step in steps:
        assert sum(ns or 0 for ns in step.phase_ns) + sum(ns for _, ns in step.region_ns) == step.period_ns
    total = sum(step.period_ns for step in steps) + sum(segment.duration_ns for segment in segments)
    assert total == int((script.now + 1e-3) * 1e9) - int(99.0 * 1e9)
    return builder, steps, segments


def loop(num_steps: int, body: Callable[[EdgeScript, int], object]) -> EdgeScript:
    script = EdgeScript(infers=True)
    for number in range(num_steps):
        body(script, number)
    return script


def plain(script: EdgeScript, number: int) -> None:
    if number == 0:
        script.iterator()
    script.wait(7).fetch(20).wait(1).learn().wait(1).update()


def test_a_plain_loop_is_a_step_a_batch() -> None:
    builder, steps, segments = inferred(loop(10, plain))

    assert [step.step for step in steps] == list(range(1, 11))
    assert [ms(steps[4], phase) for phase in ("input", "forward", "backward", "optimizer")] == [20, 3, 5, 2]
    assert [ms(steps[4], phase) for phase in ("in_step", "between_steps")] == [2, 7]
    assert [segment.kind for segment in segments] == ["startup", "tail"]
    assert round(segments[0].duration_ns / MS) == 1007
    assert (builder.state.inferred, builder.state.unsure) == (True, "")


def test_what_was_accumulated_is_one_step() -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        for _ in range(4):
            script.fetch(2).learn()
        script.update()

    builder, steps, _ = inferred(loop(6, body))

    assert [(s.num_micro_batches, s.num_optimizer_steps, ms(s, "input"), ms(s, "backward")) for s in steps] == [
        (4, 1, 8, 20)
    ] * 6
    assert builder.state.unsure == ""


def test_a_short_last_group_is_a_step_of_its_own() -> None:
    script = EdgeScript(infers=True)
    for epoch in (1, 2):
        script.iterator(epoch=epoch)
        for number in range(11):
            script.fetch(2).learn()
            if number % 4 == 3 or number == 10:
                script.update()
        script.exhaust(1)

    builder, steps, _ = inferred(script)

    assert [step.num_micro_batches for step in steps] == [4, 4, 3] * 2
    assert builder.state.unsure == ""


def test_two_optimizers_on_one_batch_are_one_step() -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        script.fetch(2).learn().update(optimizer=1).wait(1).learn().update(optimizer=2)

    builder, steps, _ = inferred(loop(6, body))

    assert [(s.num_optimizer_steps, s.num_micro_batches, ms(s, "in_step")) for s in steps] == [(2, 1, 1)] * 6
    assert builder.state.unsure == ""


def test_two_optimizers_without_a_loader_are_one_step() -> None:
    builder, steps, _ = inferred(
        loop(6, lambda script, _: script.wait(4).learn().update(optimizer=1).learn().update(optimizer=2))
    )

    assert [step.num_optimizer_steps for step in steps] == [2] * 6
    assert [ms(step, "between_steps") for step in steps[1:]] == [4] * 5
    assert ms(steps[0], "input") is None
    assert builder.state.unsure == ""


def test_a_critic_with_a_batch_for_each_update_is_a_step_a_batch_and_unsure() -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        for _ in range(5):
            script.fetch(2).learn().update(optimizer=1)
        script.learn().update(optimizer=2)

    builder, steps, _ = inferred(loop(3, body))

    assert len(steps) == 15
    assert builder.state.unsure == "2 optimizers made 1 to 2 updates a step"


def test_five_critic_updates_on_one_batch_are_unsure_with_both_counts() -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        script.fetch(2)
        for _ in range(5):
            script.learn().update(optimizer=1)
        script.learn().update(optimizer=2)

    builder, steps, _ = inferred(loop(6, body))

    assert len(steps) == 30
    assert "5 steps ended by the next batch, 24 by an optimizer that stepped again" in builder.state.unsure


def test_an_evaluation_every_third_step_is_eval_between_the_steps() -> None:
    script = EdgeScript(infers=True).iterator(loader=1)
    for number in range(12):
        script.switch(loader=1).fetch(20).learn().update()
        if number % 3 == 2:
            script.wait(1).iterator(loader=2, epoch=number + 1)
            for _ in range(4):
                script.fetch(5).wait(1).phase(edges.EVAL, 2)
            script.exhaust(1)

    builder, steps, segments = inferred(script)

    assert len(steps) == 12
    assert [ms(step, "eval") for step in steps[:6]] == [None, None, None, 28, None, None]
    assert [ms(step, "input") for step in steps] == [20] * 12
    assert (ms(steps[3], "in_step"), ms(steps[3], "between_steps")) == (0, 6)
    assert (ms(segments[-1], "eval"), ms(segments[-1], "forward")) == (28, None)
    assert builder.state.unsure == ""


def test_an_evaluation_with_a_model_we_do_not_see_is_eval_too() -> None:
    script = EdgeScript(infers=True).iterator(loader=1)
    for number in range(9):
        script.switch(loader=1).fetch(20).learn().update()
        if number == 3:
            script.iterator(loader=2).fetch(50).wait(4).fetch(50).wait(4).exhaust(0)

    _, steps, _ = inferred(script)

    assert len(steps) == 9
    assert (ms(steps[4], "input"), ms(steps[4], "eval")) == (20, 100)
    assert (ms(steps[4], "in_step"), ms(steps[4], "between_steps")) == (0, 8)


def test_a_closure_that_runs_forward_and_backward_again_is_one_step() -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        script.fetch(2).edge(edges.OPTIMIZER).wait(1)
        for _ in range(3):
            script.learn()
        script.edge(edges.OPTIMIZER + edges.CLOSE).updated()

    builder, steps, _ = inferred(loop(20, body))

    assert len(steps) == 20
    assert [ms(steps[5], phase) for phase in ("input", "forward", "backward", "optimizer")] == [2, 9, 15, 1]
    assert steps[5].num_optimizer_steps == 1
    assert builder.state.unsure == ""


def test_the_first_closure_without_a_loader_counts_in_the_first_step() -> None:
    def body(script: EdgeScript, _number: int) -> None:
        script.edge(edges.OPTIMIZER).wait(1).learn().learn().edge(edges.OPTIMIZER + edges.CLOSE).updated()

    _, steps, _ = inferred(loop(6, body))

    assert [(step.num_optimizer_steps, step.num_micro_batches) for step in steps] == [(1, 2)] * 6


def test_batches_looked_at_are_startup_and_not_the_first_step() -> None:
    script = EdgeScript(infers=True).iterator()
    for _ in range(4):
        script.fetch(30)
    script.wait(5).iterator(epoch=2)
    for _ in range(5):
        script.fetch(20).learn().update()

    _, steps, segments = inferred(script)

    assert [ms(step, "input") for step in steps] == [20] * 5
    assert round(segments[0].duration_ns / MS) == 1000 + 4 * 30 + 5


def test_an_agent_that_acts_with_gradients_on_is_a_step_an_update() -> None:
    def body(script: EdgeScript, number: int) -> None:
        script.phase(edges.FORWARD, 1).wait(2)
        if number >= 4:
            script.phase(edges.FORWARD, 3).phase(edges.BACKWARD, 5).update()

    builder, steps, _ = inferred(loop(20, body))

    assert len(steps) == 16
    assert [ms(step, "forward") for step in steps[1:]] == [4] * 15
    assert builder.state.unsure == ""


def test_a_rollout_without_gradients_is_eval_and_each_update_a_step() -> None:
    script = EdgeScript(infers=True)
    for _ in range(3):
        for _ in range(5):
            script.phase(edges.EVAL, 1).wait(1)
        for _ in range(4):
            script.phase(edges.BACKWARD, 5).update()

    builder, steps, _ = inferred(script)

    assert len(steps) == 12
    assert [ms(step, "eval") for step in steps[3:6]] == [None, 5, None]
    assert ms(steps[4], "between_steps") == 5
    assert builder.state.unsure == ""


def test_updates_inside_a_backward_are_one_step_that_ends_with_it() -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        script.fetch(2).phase(edges.FORWARD, 3).edge(edges.BACKWARD)
        for optimizer in range(1, 9):
            script.wait(1).update(1, optimizer)
        script.wait(1).edge(edges.BACKWARD + edges.CLOSE).wait(2)

    builder, steps, _ = inferred(loop(20, body))

    assert [(step.num_optimizer_steps, ms(step, "backward"), ms(step, "optimizer")) for step in steps] == [
        (8, 9, 8)
    ] * 20
    assert builder.state.unsure == ""


def test_updates_inside_a_backward_without_a_loader_are_a_step_a_backward() -> None:
    def body(script: EdgeScript, _: int) -> None:
        script.phase(edges.FORWARD, 3).edge(edges.BACKWARD)
        for optimizer in (1, 2):
            script.wait(1).update(1, optimizer)
        script.edge(edges.BACKWARD + edges.CLOSE)

    builder, steps, _ = inferred(loop(20, body))

    assert [step.num_optimizer_steps for step in steps] == [2] * 20
    assert builder.state.unsure == ""


def test_an_inner_gradient_is_part_of_the_step_of_the_outer_update() -> None:
    def body(script: EdgeScript, _: int) -> None:
        for _ in range(4):
            script.phase(edges.FORWARD, 1).phase(edges.BACKWARD, 1).phase(edges.FORWARD, 1)
        script.phase(edges.BACKWARD, 5).update()

    builder, steps, _ = inferred(loop(10, body))

    assert [(ms(step, "forward"), ms(step, "backward")) for step in steps] == [(8, 9)] * 10
    assert builder.state.unsure == ""


def test_a_skipped_update_ends_its_step_all_the_same() -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        script.fetch(2).learn()
        if number in (0, 5):
            script.skip()
        else:
            script.update()

    builder, steps, _ = inferred(loop(10, body))

    assert [step.num_optimizer_steps for step in steps] == [0, 1, 1, 1, 1, 0, 1, 1, 1, 1]
    assert ms(steps[5], "optimizer") is None
    assert builder.state.unsure == ""


@pytest.mark.parametrize("num_backwards", [10, 64, 200])
def test_without_any_update_each_backward_is_a_step_and_unsure(num_backwards: int) -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        script.fetch(2).learn().wait(2)

    builder, steps, _ = inferred(loop(num_backwards, body))

    assert [(ms(step, "input"), ms(step, "backward")) for step in steps] == [(2, 5)] * num_backwards
    assert builder.state.unsure.startswith(f"no optimizer step was seen, so each of {num_backwards} backwards")


def test_a_batch_fetched_before_the_update_is_the_next_steps_and_ends_none() -> None:
    script = EdgeScript(infers=True).iterator().fetch(20)
    for _ in range(8):
        script.learn().fetch(20).update()

    builder, steps, _ = inferred(script)

    assert len(steps) == 8
    assert [ms(step, "input") for step in steps] == [40, *[20] * 7]
    assert builder.state.unsure == ""


def test_a_loop_that_fetches_before_each_update_has_a_step_an_update_in_every_epoch() -> None:
    script = EdgeScript(infers=True)
    for _ in range(3):
        script.iterator().fetch(1)
        for _ in range(19):
            script.learn().fetch(1).update()
        script.learn().exhaust(0).update()

    builder, steps, _ = inferred(script)

    assert [step.num_optimizer_steps for step in steps] == [1] * 60
    assert builder.state.unsure == ""


def test_two_passes_of_one_optimizer_step_are_one_step() -> None:
    def body(script: EdgeScript, number: int) -> None:
        if number == 0:
            script.iterator()
        script.fetch(2).learn().wait(1).edge(edges.OPTIMIZER).learn().update(2, optimizer=2)
        script.edge(edges.OPTIMIZER + edges.CLOSE).updated(optimizer=1)

    builder, steps, _ = inferred(loop(10, body))

    assert [step.num_optimizer_steps for step in steps] == [1] * 10
    assert builder.state.unsure == ""


def test_an_optimizer_step_before_the_loop_is_no_step() -> None:
    script = EdgeScript(infers=True).update().iterator()
    for _ in range(5):
        script.fetch(20).learn().update()

    assert len(inferred(script)[1]) == 5


def test_an_optimizer_that_raised_costs_no_more_than_its_own_step() -> None:
    script = EdgeScript(infers=True).iterator()
    for number in range(10):
        script.fetch(20).learn()
        if number == 4:
            script.edge(edges.OPTIMIZER).wait(1)
        else:
            script.update()

    _, steps, _ = inferred(script)

    assert len(steps) == 9
    assert [ms(step, "optimizer") for step in steps] == [2, 2, 2, 2, 3, 2, 2, 2, 2]


def test_until_it_works_on_a_batch_that_may_be_an_evaluations_a_rank_is_between_its_steps() -> None:
    script = EdgeScript(infers=True).iterator().fetch(2).learn().update().fetch(2).learn().update()
    script.iterator(2).fetch(2).wait(40)
    builder = script.builder()
    builder.feed(script.batch())

    slot = builder.live(script.batch(len(script.codes)), now_ns=int(script.now * 1e9), alive=True)
    assert slot.phase == "between_steps"
