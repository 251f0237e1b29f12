"""Holds the cut of a step at the end of its last sync: what its rank did before it, however the step looks."""

from __future__ import annotations

from typing import Optional

from hypothesis import given
from hypothesis import strategies as st

from tests.edge_script import EdgeScript
from traceml.schema import phases
from traceml.schema.records import RegionName, StepRecord
from traceml.wire import edges

MS = 1_000_000


def before_ms(record: StepRecord, phase: str) -> float:
    assert record.sync is not None
    return round(record.sync.phase_ns[phases.PHASE_INDEX[phase]] / MS, 3)


def whole_ms(record: StepRecord, phase: str) -> Optional[float]:
    found = record.phase_ns[phases.PHASE_INDEX[phase]]
    return None if found is None else round(found / MS, 3)


def backward(script: EdgeScript, own: float, sync: float) -> EdgeScript:
    script.edge(edges.BACKWARD).wait(own).edge(edges.SYNC).wait(sync)
    return script.edge(edges.SYNC + edges.CLOSE).edge(edges.BACKWARD + edges.CLOSE)


def ddp_step(script: EdgeScript, *, sync: float = 7, rest: float = 1) -> EdgeScript:
    script.begin().phase(edges.FORWARD, 3)
    return backward(script, 5, sync).phase(edges.OPTIMIZER, 2).wait(rest).end()


def test_a_step_without_a_sync_has_no_cut() -> None:
    assert EdgeScript().iterator().fetch(1).step().steps()[0].sync is None


def test_the_cut_holds_what_came_before_the_end_of_the_sync() -> None:
    script = EdgeScript().iterator().fetch(1).step()
    script.wait(4).fetch(20)

    step = ddp_step(script).steps()[1]

    assert [before_ms(step, phase) for phase in ("between_steps", "input", "forward", "backward")] == [4, 20, 3, 5]
    assert [before_ms(step, phase) for phase in ("sync", "optimizer", "in_step")] == [7, 0, 0]
    assert [whole_ms(step, phase) for phase in ("sync", "optimizer", "in_step")] == [7, 2, 1]
    assert step.sync is not None
    assert (step.sync.num_syncs, round(step.sync.longest_ns / MS, 3)) == (1, 7)
    assert abs(step.end_ns - step.sync.end_ns - 3 * MS) < 10


def test_the_last_sync_of_a_step_cuts_it() -> None:
    script = EdgeScript().iterator().fetch(2).begin().phase(edges.FORWARD, 3)
    backward(script, 5, 9).phase(edges.OPTIMIZER, 2).wait(1).phase(edges.SYNC, 4).wait(6).end()

    step = script.steps()[0]

    assert [before_ms(step, phase) for phase in ("optimizer", "in_step", "sync")] == [2, 1, 13]
    assert step.sync is not None
    assert (step.sync.num_syncs, round(step.sync.longest_ns / MS, 3)) == (2, 9)


def test_a_fetch_behind_the_sync_is_not_before_it() -> None:
    script = EdgeScript().iterator().fetch(20).begin().phase(edges.FORWARD, 3)
    backward(script, 5, 7).fetch(11).end()
    script.begin().phase(edges.FORWARD, 3)
    backward(script, 5, 7).end()

    step = script.steps()[0]

    assert whole_ms(step, "input") == 31
    assert before_ms(step, "input") == 20


def test_a_sync_inside_a_fetch_takes_the_fetchs_part_before_it() -> None:
    script = EdgeScript().iterator().edge(edges.INPUT).wait(6).phase(edges.SYNC, 2).wait(3).edge(edges.INPUT + 64)
    step = script.begin().work().end().steps()[0]

    assert (before_ms(step, "input"), whole_ms(step, "input")) == (6, 9)


def test_an_evaluation_before_the_sync_stays_before_it() -> None:
    script = EdgeScript().iterator().fetch(1).step().phase(edges.EVAL, 30).switch(2).fetch(8).phase(edges.EVAL, 30)
    step = ddp_step(script.switch(1).fetch(2)).steps()[1]

    assert (before_ms(step, "eval"), whole_ms(step, "eval")) == (68, 68)
    assert before_ms(step, "input") == 2


def test_a_teachers_forward_is_the_forwards_before_the_sync_as_well() -> None:
    script = EdgeScript().iterator().fetch(1).step().fetch(1).begin().phase(edges.FORWARD, 3)
    script.phase(edges.FORWARD_NO_GRAD, 4)
    step = backward(script, 5, 7).phase(edges.FORWARD_NO_GRAD, 6).end().steps()[1]

    assert (before_ms(step, "forward"), whole_ms(step, "forward")) == (7, 13)


def test_regions_are_cut_too() -> None:
    script = EdgeScript().iterator().fetch(1).begin().phase(edges.FIRST_REGION, 4)
    backward(script, 5, 7).phase(edges.FIRST_REGION, 2).end()
    builder = script.builder()
    builder.learn(RegionName(0, "augment"))
    builder.feed(script.batch())
    script.fetch(1).step()
    step = script.steps()[0]

    assert step.sync is not None
    assert [(number, round(ns / MS)) for number, ns in step.sync.region_ns] == [(0, 4)]


def test_inferred_steps_are_cut_at_the_last_sync_before_their_end() -> None:
    script = EdgeScript(infers=True).iterator()
    for _ in range(4):
        script.fetch(20).phase(edges.FORWARD, 3)
        backward(script, 5, 7).wait(2).update(3).wait(1)

    step = script.steps()[2]

    assert [before_ms(step, phase) for phase in ("input", "forward", "backward", "sync", "optimizer")] == [
        20,
        3,
        5,
        7,
        0,
    ]
    assert before_ms(step, "between_steps") == 1
    assert whole_ms(step, "in_step") == 2


def test_accumulation_in_an_inferred_step_is_cut_at_its_only_sync() -> None:
    script = EdgeScript(infers=True).iterator()
    for number in range(12):
        script.fetch(10).phase(edges.FORWARD, 3)
        if number % 3 == 2:
            backward(script, 5, 7).update(3)
        else:
            script.phase(edges.BACKWARD, 5)

    step = script.steps()[1]

    assert [before_ms(step, phase) for phase in ("input", "forward", "backward")] == [30, 9, 15]


def test_two_updates_a_step_are_cut_at_the_second_ones_sync() -> None:
    script = EdgeScript(infers=True).iterator()
    for _ in range(5):
        script.fetch(10).phase(edges.FORWARD, 3)
        backward(script, 5, 7).update(3, optimizer=1).phase(edges.FORWARD, 2)
        backward(script, 4, 6).update(1, optimizer=2)

    step = script.steps()[2]

    assert [before_ms(step, phase) for phase in ("input", "forward", "backward", "sync")] == [10, 5, 9, 13]
    assert (before_ms(step, "optimizer"), whole_ms(step, "optimizer")) == (3, 4)
    assert step.sync is not None
    assert step.sync.num_syncs == 2  # one a model


@given(
    st.lists(
        st.sampled_from(["fetch", "forward", "backward", "sync", "optimizer", "gc", "teacher", "wait"]),
        min_size=1,
        max_size=14,
    ),
    st.booleans(),
)
def test_the_cut_of_any_step_adds_up_to_the_time_from_its_begin_to_the_syncs_end(what: list[str], infers: bool) -> None:
    script = EdgeScript(infers=infers).iterator()
    codes = {
        "forward": edges.FORWARD,
        "sync": edges.SYNC,
        "optimizer": edges.OPTIMIZER,
        "gc": edges.GC,
        "teacher": edges.FORWARD_NO_GRAD,
    }
    for _ in range(4):
        script.fetch(3)
        if not infers:
            script.begin()
        script.phase(edges.FORWARD, 1)
        for name in what:
            if name == "fetch":
                script.fetch(2)
            elif name == "wait":
                script.wait(1)
            elif name == "backward":
                backward(script, 2, 1)
            else:
                script.phase(codes[name], 2)
        if infers:
            script.update(1)
        else:
            script.end()
        script.wait(1)

    for step in script.steps():
        if step.sync is None:
            assert not {"sync", "backward"} & set(what)
            continue
        spent = sum(step.sync.phase_ns) + sum(ns for _, ns in step.sync.region_ns)
        assert abs(spent - (step.sync.end_ns - (step.end_ns - step.period_ns))) < 100  # rounding
