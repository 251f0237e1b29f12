"""Shows which phase an exception left, whatever ran behind it until the process was gone."""

from __future__ import annotations

from array import array
from typing import Callable, Optional

import pytest

from tests.edge_script import EdgeScript
from traceml.analysis.steps import StepBuilder
from traceml.schema import phases
from traceml.schema.records import RankEnd, RegionName, StepRecord
from traceml.wire import edges
from traceml.wire.ring import EdgeBatch

CLOSE = edges.CLOSE
Play = Callable[[EdgeScript], EdgeScript]


def raised(script: EdgeScript, code: int, *, close: Optional[int] = None) -> EdgeScript:
    return script.edge(code).wait(1).edge(edges.RAISED).edge(code + CLOSE if close is None else close)


def in_fetch(script: EdgeScript) -> EdgeScript:
    return raised(script, edges.INPUT, close=edges.CLOSE_NO_BATCH)


def in_forward(script: EdgeScript) -> EdgeScript:
    return raised(script.fetch(2).begin(), edges.FORWARD).end(failed=True)


def in_copy_of_forward(script: EdgeScript) -> EdgeScript:
    script.fetch(2).begin().edge(edges.FORWARD).edge(edges.H2D).wait(1).edge(edges.RAISED).edge(edges.H2D + CLOSE)
    return script.edge(edges.RAISED).edge(edges.FORWARD + CLOSE).end(failed=True)


def in_forward_of_region(script: EdgeScript) -> EdgeScript:
    raised(script.fetch(2).begin().edge(edges.FIRST_REGION), edges.FORWARD)
    return script.edge(edges.RAISED).edge(edges.FIRST_REGION + CLOSE).end(failed=True)


def in_optimizer(script: EdgeScript) -> EdgeScript:
    return script.fetch(2).begin().work().edge(edges.OPTIMIZER).wait(1).end(failed=True)


def in_loss(script: EdgeScript) -> EdgeScript:
    return script.fetch(2).begin().phase(edges.FORWARD, 3).wait(1).end(failed=True)


def in_wait(script: EdgeScript) -> EdgeScript:
    raised(script.fetch(2).begin().phase(edges.FORWARD, 3).edge(edges.BACKWARD), edges.SYNC)
    return script.edge(edges.RAISED).edge(edges.BACKWARD + CLOSE).end(failed=True)


def with_collection(script: EdgeScript) -> EdgeScript:
    return in_forward(script).phase(edges.GC, 3)


def with_checkpoint_in_its_handler(script: EdgeScript) -> EdgeScript:
    return in_fetch(script).phase(edges.CHECKPOINT, 30)


def with_barrier_that_fails_in_its_finally(script: EdgeScript) -> EdgeScript:
    return raised(in_fetch(script), edges.SYNC)


def in_checkpoint_behind_a_batch_that_was_skipped(script: EdgeScript) -> EdgeScript:
    return raised(in_fetch(script), edges.CHECKPOINT)


def three_steps(*, infers: bool = False) -> EdgeScript:
    script = EdgeScript(infers=infers).iterator()
    for _ in range(3):
        script = script.fetch(2).learn().update() if infers else script.fetch(2).step()
    return script


def finished(script: EdgeScript, *, exception: str = "ValueError") -> tuple[StepBuilder, list[StepRecord]]:
    builder = script.edge(edges.RUN_END).builder()
    builder.learn(RegionName(0, "augment"))
    builder.feed(script.batch())
    steps = builder.take().steps
    builder.learn(RankEnd(0, "exception" if exception else "end", exception))
    rest = builder.finish(EdgeBatch(len(script.codes), array("d"), b"", 0), end_ns=int(script.now * 1e9))
    return builder, [*steps, *rest.steps]


def slot_of(builder: StepBuilder, script: EdgeScript) -> tuple[int, str]:
    slot = builder.live(EdgeBatch(len(script.codes), array("d"), b"", 0), now_ns=int(script.now * 1e9), alive=False)
    return slot.step, slot.phase


@pytest.mark.parametrize(
    ("play", "phase"),
    [
        (in_fetch, phases.INPUT),
        (in_forward, phases.FORWARD),
        (in_copy_of_forward, phases.H2D),
        (in_forward_of_region, phases.FORWARD),
        (in_optimizer, phases.OPTIMIZER),
        (in_loss, phases.IN_STEP),
        (in_wait, phases.SYNC),
        (with_collection, phases.FORWARD),
        (with_checkpoint_in_its_handler, phases.INPUT),
        (with_barrier_that_fails_in_its_finally, phases.INPUT),
        (in_checkpoint_behind_a_batch_that_was_skipped, phases.CHECKPOINT),
    ],
)
def test_who_died_of_an_exception_did_so_in_the_phase_that_it_left_first(play: Play, phase: str) -> None:
    script = play(three_steps())

    builder, _ = finished(script)

    assert builder.raised == (4, phase)
    assert slot_of(builder, script) == (4, phase)


@pytest.mark.parametrize("code", [edges.FORWARD, edges.BACKWARD])
def test_it_is_the_same_where_steps_are_inferred(code: int) -> None:
    script = raised(three_steps(infers=True).fetch(2), code)

    builder, steps = finished(script)

    assert len(steps) == 3
    assert slot_of(builder, script) == (4, edges.PHASE_OF[code])


def test_an_exception_behind_which_training_went_on_is_none_any_more() -> None:
    builder, steps = finished(in_forward(three_steps()).fetch(2).step())

    assert [step.failed_in for step in steps] == [None, None, None, phases.FORWARD, None]
    assert builder.raised is None


def test_a_run_that_ends_well_behind_an_exception_that_was_caught_is_where_it_is() -> None:
    script = in_fetch(three_steps())

    builder, _ = finished(script, exception="")

    assert slot_of(builder, script) == (4, phases.BETWEEN_STEPS)
