"""Holds the device's clock to design section 3: exclusive time between events, exact sums, late data, restarts."""

from __future__ import annotations

from array import array
from typing import Any, Optional

import pytest

from tests.device_script import DeviceScript
from traceml.schema import phases
from traceml.schema.records import StepRecord, Watching
from traceml.wire import edges
from traceml.wire.ring import EdgeBatch

MS = 1_000_000


def on_device(record: StepRecord, phase: str) -> Optional[float]:
    """A phase's ms on the device's clock."""
    assert record.device is not None
    found = record.device.phase_ns[phases.PHASE_INDEX[phase]]
    return None if found is None else round(found / MS, 1)


def adds_up(record: StepRecord) -> bool:
    assert record.device is not None
    times = [ns for ns in record.device.phase_ns if ns is not None] + [ns for _, ns in record.device.region_ns]
    return sum(times) == record.device.period_ns


def blocking_step(script: DeviceScript, *, wait: float = 0.2) -> DeviceScript:
    """Public case S6: the host queues all, and waits in `.item()`."""
    script.fetch(wait)
    script.begin()
    script.does(edges.FORWARD, host=0.1, device=5.2)
    script.does(edges.BACKWARD, host=0.1, device=9.5)
    script.does(edges.OPTIMIZER, host=0.1, device=2.3)
    script.item().end()
    return script


def queued_step(
    script: DeviceScript, *, device: float = 10.0, host: float = 1.0, wait: float = 0.2, depth: int = 4
) -> DeviceScript:
    """The host only queues; it is held back by nothing here."""
    script.fetch(wait)
    script.begin()
    script.does(edges.FORWARD, host=host, device=device * 0.3)
    script.does(edges.BACKWARD, host=host, device=device * 0.6)
    script.does(edges.OPTIMIZER, host=host, device=device * 0.1)
    script.end()
    return script.holds_back(depth)


def a_loop(script: DeviceScript, num_steps: int, **how: Any) -> DeviceScript:
    script.iterator()
    for _ in range(num_steps):
        queued_step(script, **how)
    return script


def test_a_blocking_call_does_not_carry_the_devices_time() -> None:
    script = DeviceScript()
    script.iterator()
    for _ in range(4):
        blocking_step(script)

    step = script.steps()[2]

    assert [on_device(step, phase) for phase in ("forward", "backward", "optimizer")] == [5.2, 9.5, 2.3]
    assert on_device(step, "in_step") == 0
    assert (step.phase_ns[phases.PHASE_INDEX["in_step"]] or 0) > 16 * MS
    assert adds_up(step)


def test_a_device_that_has_work_left_does_not_wait_for_input() -> None:
    steps = a_loop(DeviceScript(), 30, device=30.0, wait=9).steps()

    assert [on_device(step, "input") for step in steps[10:25]] == [0] * 15
    assert all(adds_up(step) for step in steps[10:25])


def test_a_device_that_has_no_work_waits_for_input() -> None:
    step = a_loop(DeviceScript(), 6, device=3.0, wait=20).steps()[3]

    assert on_device(step, "input") == pytest.approx(19.9, abs=0.3)


def test_the_first_step_has_no_device_period_as_nothing_ended_before_it() -> None:
    steps = a_loop(DeviceScript(), 4).steps()

    assert steps[0].device is None
    assert all(step.device is not None for step in steps[1:])


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


def test_edges_that_share_an_event_divide_as_if_each_had_one() -> None:
    whole, shared = DeviceScript(), DeviceScript()
    shared.eventless = {edges.FORWARD + edges.CLOSE, edges.BACKWARD + edges.CLOSE, edges.STEP_BEGIN}
    one, other = (a_loop(script, 6, device=30.0).steps()[3] for script in (whole, shared))

    assert [on_device(one, p) for p in phases.PHASES] == [on_device(other, p) for p in phases.PHASES]


def test_a_collection_in_backward_stays_in_backward_on_the_devices_clock() -> None:
    script = DeviceScript()
    script.iterator()
    for _ in range(4):
        script.fetch(0.2)
        script.begin()
        script.edge(edges.BACKWARD).kernel(4)
        script.phase(edges.GC, 7)
        script.kernel(4)
        script.edge(edges.BACKWARD + edges.CLOSE)
        script.item().end()

    step = script.steps()[2]

    assert on_device(step, "backward") == pytest.approx(11, abs=0.1)
    assert on_device(step, "gc") == 0
    assert adds_up(step)


def test_starting_an_iterator_is_the_devices_wait_as_far_as_it_has_no_work() -> None:
    script = DeviceScript()
    for epoch in range(1, 5):
        script.iterator(epoch=epoch, ms=50)
        for _ in range(3):
            queued_step(script, device=20.0, host=1.0)
            script.holds_back(1)

    steps = script.steps()

    epoch_start = steps[6]
    assert 20 < (on_device(epoch_start, "input") or 0) < 50  # what was queued hides a part
    assert epoch_start.device is not None
    assert epoch_start.device.epoch_start_ns > 20 * MS
    assert adds_up(epoch_start)


def test_a_copy_on_a_stream_of_its_own_moves_nothing_else() -> None:
    script = DeviceScript()
    script.iterator()
    for _ in range(20):
        script.fetch(0.2)
        script.begin()
        script.stream = 1  # the next batch is copied beside the work: the stream is far ahead, or behind
        script.does(edges.H2D, host=0.1, device=2.0)
        script.stream = 0
        script.does(edges.FORWARD, host=0.1, device=6.0)
        script.does(edges.BACKWARD, host=0.1, device=12.0)
        script.end()

    step = script.steps()[12]

    assert [on_device(step, phase) for phase in ("forward", "backward", "h2d")] == [6, 12, 0]
    assert adds_up(step)


def test_many_copies_in_a_row_with_one_event_around_them_are_copies() -> None:
    script = DeviceScript()
    script.iterator()
    for _ in range(6):
        script.fetch(0.2).begin()
        script.edge(edges.H2D).wait(1)
        script.eventless = {edges.H2D, edges.H2D + edges.CLOSE}
        for ms in (3, 1, 0.2):
            script.edge(edges.H2D + edges.CLOSE).wait(0.005).edge(edges.H2D).wait(ms)
        script.eventless = set()
        script.edge(edges.H2D + edges.CLOSE)
        script.does(edges.FORWARD, host=0.1, device=6.0)
        script.item().end()

    step = script.steps()[3]

    assert on_device(step, "h2d") == pytest.approx(5.2, abs=0.1)
    assert on_device(step, "in_step") == 0


def test_what_was_unwound_is_closed_on_both_clocks() -> None:
    script = DeviceScript()
    script.iterator()
    for _ in range(5):
        script.fetch(0.2).begin()
        script.edge(edges.FORWARD).wait(1)
        script.kernel(3)
        script.edge(edges.UNWOUND).wait(4)
        script.item().end()

    step = script.steps()[3]

    assert adds_up(step)
    assert on_device(step, "backward") is None


def test_events_of_another_device_are_counted_and_not_mixed_in() -> None:
    script = DeviceScript()
    script.iterator()
    for _ in range(8):
        script.fetch(0.2)
        script.begin()
        script.does(edges.FORWARD, host=0.1, device=6.0)
        script.device = 1
        script.does(edges.FIRST_REGION, host=0.1, device=50.0)
        script.device = 0
        script.does(edges.BACKWARD, host=0.1, device=12.0)
        script.end()
    builder, taken, rest = script.built()

    timed = [step for step in [*taken.steps, *rest.steps] if step.device]
    assert len(timed) >= 4
    assert all(on_device(step, "backward") == 12 and adds_up(step) for step in timed)
    assert builder.state.num_other_events >= 2 * len(timed)


def test_an_exhausting_fetch_is_the_rests_on_both_clocks() -> None:
    script = DeviceScript()
    for epoch in range(1, 4):
        script.iterator(epoch=epoch)
        for _ in range(3):
            blocking_step(script)
        script.exhaust(8)

    step = script.steps()[3]

    assert on_device(step, "between_steps") == pytest.approx(8, abs=0.1)
    assert on_device(step, "input") == pytest.approx(0.2, abs=0.1)


def test_an_evaluations_fetches_are_eval_on_both_clocks() -> None:
    script = DeviceScript()
    script.iterator()
    for _ in range(6):
        blocking_step(script)
        script.switch(loader=2)
        script.fetch(4)
        script.does(edges.EVAL, host=0.1, device=6)
        script.item().switch(loader=1)

    step = script.steps()[3]

    assert on_device(step, "eval") == pytest.approx(10, abs=0.3)
    assert on_device(step, "input") == pytest.approx(0.2, abs=0.1)


def test_inferred_steps_have_the_devices_clock_too() -> None:
    script = DeviceScript(infers=True)
    script.iterator()
    for _ in range(12):
        script.fetch(2)
        script.does(edges.FORWARD, host=0.2, device=3)
        script.does(edges.BACKWARD, host=0.2, device=5)
        script.does(edges.OPTIMIZER, host=0.2, device=1)
        script.updated()
        script.close_step()
        script.item().wait(4)

    steps = script.steps()

    timed = [step for step in steps if step.device]
    assert len(timed) >= 9
    assert all(adds_up(step) for step in timed)
    assert [on_device(timed[4], p) for p in ("forward", "backward", "optimizer")] == [3, 5, 1]
    assert on_device(timed[4], "between_steps") == pytest.approx(4, abs=0.1)
    assert on_device(timed[4], "input") == pytest.approx(2, abs=0.1)


def test_a_failed_step_has_its_device_times() -> None:
    script = a_loop(DeviceScript(), 3)
    script.fetch(0.2)
    script.begin()
    script.does(edges.FORWARD, host=0.1, device=3)
    script.end(failed=True)
    steps = a_loop(script, 4).steps()

    assert steps[3].failed_in is not None
    assert on_device(steps[3], "forward") is not None


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


def test_a_step_that_waits_for_all_that_was_queued_is_no_slow_step() -> None:
    script = DeviceScript()
    script.iterator()
    for number in range(1, 161):
        queued_step(script, device=12.0, host=0.3, depth=1000)
        if number % 40 == 0:
            script.item()  # loss.item(): the host's period of the next step holds 40 steps of the device
    _, taken, rest = script.built()

    long = [step for step in taken.steps if step.period_ns > 300 * MS]
    assert len(long) == 3
    assert not [event for event in (*taken.events, *rest.events) if event.kind == "slow step"]


def test_a_step_that_is_slow_on_the_device_is_a_slow_step() -> None:
    script = DeviceScript()
    script.iterator()
    for number in range(1, 81):
        queued_step(script, device=300.0 if number == 60 else 12.0, host=0.3)
    _, taken, rest = script.built()

    assert [event.step for event in (*taken.events, *rest.events) if event.kind == "slow step"] == [60]
