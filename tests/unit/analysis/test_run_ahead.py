"""Holds `run_ahead` to the truth of simulated devices: an interval that holds it, and is narrow where it can be."""

from __future__ import annotations

from typing import Callable

import pytest

from tests.device_script import DeviceScript
from traceml.analysis.offset import Offset
from traceml.schema.records import StepRecord
from traceml.wire import edges

MS = 1_000_000

Loop = Callable[[DeviceScript, int], None]


def device_bound(script: DeviceScript, _: int) -> None:
    """The queue is six steps deep, and never empty."""
    work(script, host=0.5, device=20.0)
    script.holds_back(6)


def host_bound(script: DeviceScript, _: int) -> None:
    """Many small kernels: the device waits for each."""
    script.fetch(0.1).begin()
    for code in (edges.FORWARD, edges.BACKWARD, edges.OPTIMIZER):
        script.edge(code)
        for _ in range(20):
            script.kernel(0.02).wait(0.1)
        script.edge(code + edges.CLOSE)
    script.wait(0.03).end()


def input_bound(script: DeviceScript, _: int) -> None:
    work(script, host=0.3, device=4.0, wait=30.0)


def blocking(script: DeviceScript, _: int) -> None:
    """`.item()` in each step."""
    script.fetch(0.2).begin()
    script.does(edges.FORWARD, host=0.1, device=3.0)
    script.does(edges.BACKWARD, host=0.1, device=6.0)
    script.item().wait(0.05).end()


def bursts(script: DeviceScript, number: int) -> None:
    """The queue fills and empties."""
    work(script, host=0.5, device=12.0 if number % 20 < 8 else 0.5, wait=3.0)


def streams(script: DeviceScript, number: int) -> None:
    """Each step queues a long copy on another stream, and goes on beside it."""
    script.fetch(0.2).begin()
    script.stream = 1
    script.does(edges.H2D, host=0.1, device=7.0)
    script.stream = 0
    script.does(edges.FORWARD, host=0.3, device=3.0)
    script.does(edges.BACKWARD, host=0.3, device=6.0)
    script.end()
    script.holds_back(3 + number % 2)


def work(script: DeviceScript, *, host: float, device: float, wait: float = 0.2) -> None:
    script.fetch(wait).begin()
    script.does(edges.FORWARD, host=host, device=device / 3)
    script.does(edges.BACKWARD, host=host, device=device / 2)
    script.does(edges.OPTIMIZER, host=host, device=device / 6)
    script.wait(0.03).end()


def run(script: DeviceScript, loop: Loop, num_steps: int = 60) -> list[StepRecord]:
    script.iterator()
    for number in range(num_steps):
        loop(script, number)
    return script.steps()


def bounds_ms(step: StepRecord) -> tuple[float, float]:
    """The interval; open upwards where it is not bounded."""
    assert step.device is not None
    low, high = step.device.run_ahead_ns
    return (low or 0) / MS, float("inf") if high is None else high / MS


LOOPS = (device_bound, host_bound, input_bound, blocking, bursts, streams)


@pytest.mark.parametrize("probes", [False, True])
@pytest.mark.parametrize("drift", [-40e-6, 0.0, 40e-6])
@pytest.mark.parametrize("loop", LOOPS)
def test_the_truth_is_always_in_the_interval(loop: Loop, drift: float, *, probes: bool) -> None:
    script = DeviceScript(drift=drift, probes=probes)

    steps = [step for step in run(script, loop) if step.device]

    assert len(steps) > 50
    for step in steps:
        low, high = bounds_ms(step)
        assert low - 0.06 <= script.run_ahead_ms(step.step) <= high + 0.06


@pytest.mark.parametrize("loop", LOOPS)
def test_a_poll_long_behind_a_steps_end_proves_nothing_of_that_end(loop: Loop) -> None:
    script = DeviceScript(probes=True)
    script.poll_delay_ms = 3.0  # something else ran on the host's core meanwhile

    for step in run(script, loop):
        if step.device:
            low, high = bounds_ms(step)
            assert low - 0.06 <= script.run_ahead_ms(step.step) <= high + 0.06


@pytest.mark.parametrize("probes", [False, True])
def test_a_queue_that_never_empties_does_not_look_empty(*, probes: bool) -> None:
    script = DeviceScript(probes=probes)

    steps = run(script, device_bound)[15:50]

    assert all(bounds_ms(step)[0] > 60 for step in steps)
    assert all(script.run_ahead_ms(step.step) > 100 for step in steps)


@pytest.mark.parametrize("loop", [host_bound, blocking])
def test_a_device_that_waits_for_the_host_is_seen_to_be_near(loop: Loop) -> None:
    steps = run(DeviceScript(probes=True), loop)[10:50]

    assert all(bounds_ms(step)[1] < 0.2 for step in steps)


def test_without_a_poll_soon_after_the_upper_bound_is_wide_and_never_zero() -> None:
    script = DeviceScript()
    script.poll_delay_ms = 0  # the step's last event is not done yet, and asked again a step later

    steps = run(script, host_bound)[10:50]

    assert all(bounds_ms(step)[1] > 1 for step in steps)


def test_without_any_poll_there_is_no_upper_bound() -> None:
    steps = run(DeviceScript(has_polls=False), host_bound)[10:50]

    assert all(step.device and step.device.run_ahead_ns[1] is None for step in steps)
    assert all(step.device and step.device.run_ahead_ns[0] is not None for step in steps)


def test_a_chain_that_begins_anew_knows_nothing_of_the_old_one() -> None:
    script = DeviceScript(probes=True)
    script.iterator()
    for number in range(40):
        device_bound(script, number)
        if number == 20:
            script.lose(num_steps=len(script.steps_events) - 1)
    steps = [step for step in script.steps() if step.device]

    for step in steps:
        low, high = bounds_ms(step)
        assert low - 0.06 <= script.run_ahead_ms(step.step) <= high + 0.06


def test_a_bound_loses_its_worth_with_time() -> None:
    offset = Offset().least(1_000, 0).most(2_000, 0)

    later = offset.at(10_000_000_000)

    assert later.low_ns is not None
    assert later.high_ns is not None
    assert later.low_ns == pytest.approx(1_000 - 500_000, abs=10)
    assert later.high_ns == pytest.approx(2_000 + 500_000, abs=10)


def test_bounds_that_contradict_each_other_are_all_dropped() -> None:
    offset = Offset().least(1_000, 0).most(2_000, 0)

    moved = offset.least(900_000, 1_000)

    assert (moved.low_ns, moved.high_ns) == (None, None)
    assert moved.least(900_000, 2_000).low_ns is not None


def test_a_contradiction_of_long_ago_is_forgiven() -> None:
    offset = Offset()
    for number in range(1, 12):
        at_ns = number * 100_000_000_000
        offset = offset.least(1_000, at_ns).most(2_000, at_ns).least(900_000, at_ns + 1)
        offset = offset.least(1_000, at_ns + 2).most(2_000, at_ns + 2)

    assert offset.behind_ns(1_100_000_000_002, 1_100_000_000_002) == (1_000, 2_000)


def test_drift_beyond_the_allowance_leaves_no_nonsense() -> None:
    script = DeviceScript(drift=2e-3, probes=True)

    steps = [step for step in run(script, device_bound) if step.device]

    assert len(steps) > 50
    for step in steps:
        low, high = bounds_ms(step)
        assert low - 3 <= script.run_ahead_ms(step.step) <= high + 3


def test_clocks_that_contradict_each_other_again_and_again_say_nothing_any_more() -> None:
    steps = [step for step in run(DeviceScript(drift=2e-3, probes=True), blocking) if step.device]

    assert all(step.device and step.device.run_ahead_ns == (None, None) for step in steps[40:])
