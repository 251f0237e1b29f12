"""Holds steps to wait for their device times, but not for ever; to restarts, losses and damage."""

from __future__ import annotations

from array import array

import pytest

from tests.device_script import DeviceScript
from tests.unit.analysis.device_loops import a_loop, adds_up, queued_step
from traceml.schema.records import StepRecord, Watching
from traceml.wire import edges
from traceml.wire.ring import EdgeBatch


def test_a_step_is_held_until_its_times_are_told() -> None:
    script = a_loop(DeviceScript(), 12, device=40.0)
    builder = script.builder()
    builder.feed(script.batch())

    taken = builder.take()

    assert len(taken.steps) < 10
    assert all(step.device is not None for step in taken.steps[1:])


def test_a_step_waits_for_no_more_than_64_later_ones() -> None:
    script = DeviceScript()
    script.iterator()
    script.kernel(1e9)  # a device that never comes to anything
    for _ in range(100):
        queued_step(script, depth=1000)
    builder = script.builder()
    builder.feed(script.batch())

    taken = builder.take()

    assert len(taken.steps) == 100 - 64
    assert all(step.device is None for step in taken.steps)


def test_the_runs_end_waits_for_nothing() -> None:
    script = DeviceScript()
    script.drains = False
    script.iterator()
    script.kernel(1e9)

    steps = a_loop(script, 7, depth=1000).steps()

    assert [step.step for step in steps] == list(range(1, 8))
    assert not any(step.device for step in steps)


def test_lost_events_cost_the_steps_beside_them_and_no_others() -> None:
    script = DeviceScript()
    script.iterator()
    for number in range(1, 21):
        queued_step(script, device=3.0 if number != 10 else 30.0)
        if number == 11:
            script.lose(num_steps=len(script.steps_events) - 1)
    builder, taken, rest = script.built()

    without = [step.step for step in [*taken.steps, *rest.steps] if step.device is None]
    assert 1 in without
    assert set(without) <= {1, 9, 10, 11, 12}
    assert len(without) >= 3
    assert builder.state.num_lost_events > 0


def test_a_rank_whose_clock_turns_to_the_hosts_holds_nothing_back() -> None:
    script = DeviceScript()
    script.kernel(1e9)
    a_loop(script, 5)
    builder = script.builder()
    builder.feed(script.batch())
    builder.learn(Watching((), clock="host", clock_note="events failed: RuntimeError"))

    assert len(builder.take().steps) == 5
    assert builder.state.clock_note == "events failed: RuntimeError"


@pytest.mark.parametrize("infers", [False, True])
@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_how_often_the_ring_is_read_changes_nothing(size: int, *, infers: bool) -> None:
    script = varied(infers=infers)
    whole = script.steps()
    builder = script.builder()
    steps: list[StepRecord] = []
    for first in range(0, len(script.codes), size):
        builder.feed(script.batch(first, first + size))
        steps.extend(builder.take().steps)
    steps.extend(builder.finish(EdgeBatch(len(script.codes), array("d"), b"", 0), end_ns=0).steps)

    assert sum(step.device is not None for step in whole) > 20
    assert steps == whole


@pytest.mark.parametrize("infers", [False, True])
def test_a_restart_goes_on_exactly_there(*, infers: bool) -> None:
    script = varied(infers=infers)
    whole = script.steps()
    cursor, position = "", 0
    steps: list[StepRecord] = []
    while position < len(script.codes):
        builder = script.builder(cursor)
        position = max(position, builder.position)
        builder.feed(script.batch(builder.position, position + 90))
        taken = builder.take()
        steps.extend(taken.steps)
        cursor, position = taken.cursor, position + 90
    steps.extend(builder.finish(EdgeBatch(len(script.codes), array("d"), b"", 0), end_ns=0).steps)

    assert steps == whole


def varied(*, infers: bool) -> DeviceScript:
    """A run with a queue of changing depth, evaluations, a lost chain and a second device."""
    script = DeviceScript(infers=infers, drift=20e-6)
    script.iterator()
    for number in range(1, 61):
        script.fetch(1 + number % 5)
        if not infers:
            script.begin()
        script.does(edges.FORWARD, host=0.3, device=2 + number % 3)
        script.does(edges.BACKWARD, host=0.3, device=4)
        script.does(edges.OPTIMIZER, host=0.3, device=1)
        if infers:
            script.updated()
            script.close_step()
        else:
            script.end()
        if number % 9 == 0:
            script.item()
        if number == 31:
            script.lose(num_steps=len(script.steps_events) - 1)
    return script


def test_lost_edges_end_the_chain_and_a_new_one_begins() -> None:
    script = DeviceScript()
    script.iterator()
    for number in range(1, 41):
        queued_step(script, device=5.0)
        script.value(edges.STEP_NUMBER, number)
        if number % 10 == 0:
            script.told.clear()
            script.chain = None
    builder = script.builder()
    half = len(script.codes) // 2
    builder.feed(script.batch(0, half - 200))
    first = builder.take().steps
    builder.feed(script.batch(half, None, num_lost=200))
    rest = builder.finish(EdgeBatch(len(script.codes), array("d"), b"", 0), end_ns=0).steps

    both = [*first, *builder.take().steps, *rest]
    assert both[-1].step == 40
    assert sum(step.device is not None for step in both if step.step > 30) >= 4
    assert all(adds_up(step) for step in both if step.device)


@pytest.mark.parametrize("value", [0, 1 << 33, (1 << 52) + 5, (1 << 53) - 1])
@pytest.mark.parametrize("code", range(edges.DEVICE_FROM, edges.STEP_PEAK_RESERVED + 1))
def test_no_value_entry_can_stop_the_reader(code: int, value: int) -> None:
    script = DeviceScript()
    script.iterator()
    for number in range(12):
        queued_step(script)
        if number == 6:
            script.value(code, value)

    steps = script.steps()

    assert len(steps) == 12
    assert all(adds_up(step) for step in steps if step.device)
