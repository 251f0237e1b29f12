"""Holds the verdicts on the device's clock: no false cause of the host's clock, copies, and a device that waits."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from tests.builders import facts_of_steps, loader_info, rank_state, step_ms, timed
from tests.device_script import DeviceScript
from tests.edge_script import START_S
from traceml.analysis.facts import Facts
from traceml.analysis.gather import RankWindow, facts_of
from traceml.diagnosis.device import h2d_bound, host_bound
from traceml.diagnosis.thresholds import LIMITS
from traceml.diagnosis.verdict import diagnose
from traceml.schema.records import DeviceSample, LoaderInfo, StepRecord
from traceml.wire import edges

HOST = step_ms(input=12, forward=1, backward=1, optimizer=0.5, in_step=5.5)
CUDA = rank_state(device="cuda:0", loader=loader_info(num_workers=2))


def samples(busy: float, number: int = 20) -> tuple[DeviceSample, ...]:
    """Of the driver, all while steady steps ran."""
    return tuple(DeviceSample(at_ns=10_000_000 + at, uuid="GPU-1", busy_percent=busy) for at in range(number))


def on_device(number: int = 40, *, busy: Optional[float] = None, num_samples: int = 20, **how: Any) -> Facts:
    """Steps whose host's clock says input 60 %, with these ms on the device's."""
    devices = () if busy is None else samples(busy, num_samples)
    return facts_of_steps([timed(HOST, **how)] * number, state=CUDA, devices=devices)


# -- the host's clock is not believed ---------------------------------------------------------------------------------


def test_input_that_the_device_does_not_wait_for_is_no_cause() -> None:
    facts = on_device(input=1, forward=6, backward=12, optimizer=1)

    assert facts.ranks[0].wall.share("input") == 0.6
    assert diagnose(facts).verdict.diagnosis == "COMPUTE_BOUND"


def test_without_the_devices_clock_the_same_run_would_be_blamed_on_the_loader() -> None:
    facts = facts_of_steps([HOST] * 40, state=CUDA)

    assert diagnose(facts).step_time[0].diagnosis == "INPUT_BOUND"
    assert diagnose(facts).verdict.severity != "critical"


def test_a_wait_that_the_device_sees_is_a_cause() -> None:
    found = diagnose(on_device(input=9, forward=3, backward=7, optimizer=1)).verdict

    assert (found.diagnosis, found.severity) == ("INPUT_BOUND", "critical")


def simulated(script: DeviceScript, **surroundings: Any) -> Facts:
    _, taken, rest = script.built()
    return facts_of([RankWindow(CUDA, (*taken.steps, *rest.steps))], **surroundings)


def test_a_blocking_call_that_carries_everybodys_time_is_compute() -> None:
    script = DeviceScript(probes=True)
    script.iterator()
    for _ in range(40):
        script.fetch(0.2).begin()
        script.does(edges.FORWARD, host=0.1, device=5.2)
        script.does(edges.BACKWARD, host=0.1, device=9.5)
        script.does(edges.OPTIMIZER, host=0.1, device=2.3)
        script.item().wait(0.05).end()
    facts = simulated(script, devices=busy_samples(script, 96))

    assert facts.ranks[0].wall.share("in_step") > 0.9  # type: ignore[operator]  # was seen
    assert [finding.diagnosis for finding in diagnose(facts).step_time] == ["COMPUTE_BOUND"]


def busy_samples(script: DeviceScript, busy: float) -> tuple[DeviceSample, ...]:
    """Of the driver, nine of them while the later half of the steps ran."""
    took = script.now - START_S
    moments = [round((START_S + took * share / 20) * 1e9) for share in range(10, 19)]
    return tuple(DeviceSample(at_ns=at, uuid="GPU-1", busy_percent=busy) for at in moments)


def test_a_step_of_many_small_kernels_is_host_bound() -> None:
    script = DeviceScript(probes=True)
    script.iterator()
    for _ in range(40):
        script.fetch(0.1).begin()
        for code in (edges.FORWARD, edges.BACKWARD, edges.OPTIMIZER):
            script.edge(code)
            for _ in range(20):
                script.kernel(0.03).wait(0.1)
            script.edge(code + edges.CLOSE)
        script.wait(0.03).end()

    found = diagnose(simulated(script, devices=busy_samples(script, 30))).step_time[0]

    assert found.diagnosis == "HOST_BOUND"
    assert found.impact is not None
    assert found.impact.pct == pytest.approx(68, abs=3)


def test_steps_that_never_resolve_are_judged_on_the_hosts_clock_and_told() -> None:
    script = DeviceScript()
    script.drains = False
    script.iterator()
    for number in range(40):
        if number == 30:
            script.kernel(1e9)
        script.fetch(5).begin()
        script.does(edges.FORWARD, host=2, device=1)
        script.item().end() if number < 30 else script.end()

    facts = simulated(script)

    assert facts.clock == "host"
    assert any("have the device's clock" in note for note in facts.notes)


def test_replays_of_a_graph_are_not_blamed_on_the_script() -> None:
    script = DeviceScript(probes=True)
    script.iterator()
    for number in range(60):
        script.fetch(0.2).begin()
        if number < 3:
            script.does(edges.FORWARD, host=0.2, device=5)  # the warm-up before the capture
        else:
            script.wait(0.1)
            script.kernel(18)
        script.item().end()

    found = diagnose(simulated(script, devices=busy_samples(script, 98))).step_time[0]

    assert found.diagnosis == "OVERHEAD_BOUND"
    assert found.severity == "warning"
    assert "CUDA graph" in found.why
    assert found.next.startswith("if the step replays a CUDA graph")


# -- copies -----------------------------------------------------------------------------------------------------------


def test_waiting_for_copies_is_h2d_bound() -> None:
    found = h2d_bound(on_device(h2d=4, forward=6, backward=9, optimizer=1), LIMITS)

    assert found is not None
    assert found.impact is not None
    assert (found.diagnosis, round(found.impact.pct)) == ("H2D_BOUND", 20)
    assert found.next == "pin_memory=True in the loader, and .to(device, non_blocking=True)"


@pytest.mark.parametrize(("h2d", "fires"), [(1.9, False), (2.0, True)])
def test_copies_fire_at_a_tenth(h2d: float, *, fires: bool) -> None:
    facts = on_device(h2d=h2d, forward=6, backward=12 - h2d, optimizer=2)

    assert (h2d_bound(facts, LIMITS) is not None) == fires


def test_copies_of_under_half_a_millisecond_are_quiet() -> None:
    assert h2d_bound(on_device(h2d=0.45, forward=1, backward=1), LIMITS) is None


def test_copies_are_quiet_on_the_hosts_clock() -> None:
    step = step_ms(h2d=10, forward=5, backward=5)

    assert h2d_bound(facts_of_steps([step] * 40, state=CUDA), LIMITS) is None


def test_copies_are_quiet_when_none_was_seen() -> None:
    assert h2d_bound(on_device(forward=5, backward=5), LIMITS) is None


@pytest.mark.parametrize("loader", [loader_info(num_workers=2, pin_memory=True)])
def test_pinned_batches_are_to_be_copied_beside_the_step(loader: LoaderInfo) -> None:
    state = rank_state(device="cuda:0", loader=loader)
    facts = facts_of_steps([timed(HOST, h2d=4, forward=6, backward=9)] * 40, state=state)

    found = h2d_bound(facts, LIMITS)

    assert found is not None
    assert "non_blocking=True" in found.next
    assert "pin_memory=True" not in found.next


# -- a device that waits for the host ---------------------------------------------------------------------------------

WORK: dict[str, Any] = {"forward": 6.0, "backward": 11.0, "optimizer": 2.0, "in_step": 1.0}


def test_an_idle_device_that_is_never_behind_is_host_bound() -> None:
    found = host_bound(on_device(busy=55, run_ahead=(0, 0.1), **WORK), LIMITS)

    assert found is not None
    assert found.impact is not None
    assert found.impact.pct == pytest.approx(95 - 55)
    assert "55 %" in found.why
    assert "torch.profiler" in found.next


@pytest.mark.parametrize(("busy", "fires"), [(79.0, True), (81.0, False)])
def test_a_busy_device_waits_for_nobody(busy: float, *, fires: bool) -> None:
    assert (host_bound(on_device(busy=busy, run_ahead=(0, 0.1), **WORK), LIMITS) is not None) == fires


@pytest.mark.parametrize(("high", "fires"), [(0.15, True), (0.25, False), (None, False)])
def test_only_a_bounded_run_ahead_is_small(high: Optional[float], *, fires: bool) -> None:
    facts = on_device(busy=40, run_ahead=(0, high), **WORK)

    assert (host_bound(facts, LIMITS) is not None) == fires


def test_half_of_the_steps_must_be_near() -> None:
    near, far = timed(HOST, run_ahead=(0, 0.1), **WORK), timed(HOST, run_ahead=(0, 30), **WORK)

    def judged(steps: list[StepRecord]) -> bool:
        return host_bound(facts_of_steps(steps, state=CUDA, devices=samples(40)), LIMITS) is not None

    assert judged([near, far] * 20)
    assert not judged([*[near, far] * 20, far, far])


def test_nobody_knows_how_idle_a_device_is_that_was_not_asked() -> None:
    facts = on_device(run_ahead=(0, 0.1), **WORK)

    assert host_bound(facts, LIMITS) is None
    found = diagnose(facts).verdict
    assert found.diagnosis == "COMPUTE_BOUND"
    assert "how busy it is was not measured" in found.why


def test_four_samples_are_too_few() -> None:
    assert host_bound(on_device(busy=40, num_samples=4, run_ahead=(0, 0.1), **WORK), LIMITS) is None


def test_a_device_that_waits_for_data_does_not_wait_for_the_host() -> None:
    facts = on_device(busy=50, run_ahead=(0, 0.1), input=10, forward=3, backward=6, optimizer=1)

    assert [finding.diagnosis for finding in diagnose(facts).step_time] == ["INPUT_BOUND"]


def test_collections_that_keep_the_host_are_named() -> None:
    host = step_ms(input=1, forward=4, backward=5, optimizer=1, gc=9)
    steps = [timed(host, run_ahead=(0, 0.1), **WORK)] * 40

    found = host_bound(facts_of_steps(steps, state=CUDA, devices=samples(50)), LIMITS)

    assert found is not None
    assert "gc.freeze()" in found.next
    assert "garbage collection" in found.why


def test_the_workers_advised_are_those_that_make_a_batch_in_time() -> None:
    state = rank_state(device="cuda:0", loader=loader_info(num_workers=0))
    host = step_ms(input=30, forward=1, backward=1, in_step=8)
    steps = [timed(host, input=20, forward=6, backward=12, optimizer=2)] * 40

    found = diagnose(facts_of_steps(steps, state=state)).verdict

    assert found.diagnosis == "INPUT_BOUND"
    assert found.next.startswith("num_workers=3 (one worker makes a batch in 30.0 ms)")
