"""Holds inferred steps to being told where a training goes on without the loader that ended them."""

from __future__ import annotations

import pytest

from tests.edge_script import EdgeScript
from tests.unit.analysis.test_inference import MS, inferred, ms


def by_loader(num_steps: int) -> EdgeScript:
    """Steps of 1 ms of fetching, 8 of work and 2 of update; the loop leaves its loader unexhausted."""
    script = EdgeScript(infers=True).iterator()
    for _ in range(num_steps):
        script.fetch(1).learn().update()
    return script


@pytest.mark.parametrize("optimizer", [1, 2])
@pytest.mark.parametrize("num_more", [3, 10, 11, 12, 300])
def test_when_the_loader_is_exhausted_each_update_is_a_step_again_and_unsure(optimizer: int, num_more: int) -> None:
    script = by_loader(40).exhaust(0)
    for _ in range(num_more):
        script.wait(8).learn().update(optimizer=optimizer)

    builder, steps, _ = inferred(script)

    assert len(steps) == 40 + num_more
    assert [(s.num_optimizer_steps, s.period_ns // MS) for s in steps[40:]] == [(1, 18)] * num_more
    assert [ms(steps[-1], part) for part in ("forward", "backward", "optimizer", "input")] == [3, 5, 2, None]
    said = f"40 steps ended by the next batch, {num_more - 1} by an optimizer that stepped again"
    assert builder.state.unsure.startswith(said)


@pytest.mark.parametrize(("optimizer", "num_steps"), [(1, 340), (2, 339)])
def test_when_the_loader_was_left_each_update_is_a_step_again_and_unsure(optimizer: int, num_steps: int) -> None:
    script = by_loader(40)
    for _ in range(300):
        script.wait(8).learn().update(optimizer=optimizer)

    builder, steps, _ = inferred(script)

    # a new optimizer's first update may be on the last batch: nothing says that its step is over
    assert len(steps) == num_steps
    assert [(s.num_optimizer_steps, s.period_ns // MS) for s in steps[40:]] == [(1, 18)] * (num_steps - 40)
    said = f"39 steps ended by the next batch, {num_steps - 40} by an optimizer that stepped again"
    assert builder.state.unsure.startswith(said)


def test_two_optimizers_go_on_in_pairs_when_the_loader_is_over() -> None:
    script = EdgeScript(infers=True).iterator()
    for number in range(60):
        if number < 20:
            script.fetch(2)
        script.wait(4).learn().update(optimizer=1).learn().update(optimizer=2)

    builder, steps, _ = inferred(script)

    assert [step.num_optimizer_steps for step in steps] == [2] * 60
    assert [step.period_ns // MS for step in steps[20:]] == [24] * 40
    assert builder.state.unsure == "19 steps ended by the next batch, 40 by an optimizer that stepped again"


def test_a_leftover_update_behind_the_last_batch_is_its_steps() -> None:
    script = by_loader(40).update()

    builder, steps, _ = inferred(script)

    assert [step.num_optimizer_steps for step in steps] == [*[1] * 39, 2]
    assert builder.state.unsure == ""


@pytest.mark.parametrize(("num_updates", "num_steps", "unsure"), [(10, 41, ""), (11, 51, "40 steps ended by")])
def test_many_updates_on_a_batch_are_its_step_up_to_twice_the_usual_and_eight(
    num_updates: int, num_steps: int, unsure: str
) -> None:
    script = EdgeScript(infers=True).iterator()
    for number in range(41):
        script.fetch(1)
        for _ in range(num_updates if number == 20 else 1):
            script.learn().update()

    builder, steps, _ = inferred(script)

    assert len(steps) == num_steps
    assert builder.state.unsure.startswith(unsure)
    assert bool(builder.state.unsure) == bool(unsure)
    if num_steps == 41:
        parts = [ms(steps[20], part) for part in ("input", "forward", "backward", "optimizer")]
        assert parts == [1, 30, 50, 20]
