"""Holds the device's clock to design section 3: exclusive time between events, exact sums, other streams and devices."""

from __future__ import annotations

import pytest

from tests.device_script import DeviceScript
from tests.unit.analysis.device_loops import MS, a_loop, adds_up, blocking_step, on_device, queued_step
from traceml.schema import phases
from traceml.wire import edges


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
