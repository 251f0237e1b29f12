"""Reads what the recorder told of a device with the reader itself: the door between the two, from end to end."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.accelerator import Accelerator  # noqa: E402
from tests.unit.recorder.conftest import Recording  # noqa: E402
from tests.unit.recorder.device_training import Costs, Training, capture_step, untraced  # noqa: E402
from traceml.recorder import clock, session  # noqa: E402
from traceml.schema.phases import PHASE_INDEX, PHASES  # noqa: E402
from traceml.schema.records import StepRecord  # noqa: E402
from traceml.wire.ring import RingWriter  # noqa: E402

pytestmark = pytest.mark.torch
MS = 1_000_000


def on_device(step: StepRecord, phase: str) -> float:
    """A phase on the device's clock, in ms."""
    assert step.device is not None
    return (step.device.phase_ns[PHASE_INDEX[phase]] or 0) / MS


def on_host(step: StepRecord, phase: str) -> float:
    return (step.phase_ns[PHASE_INDEX[phase]] or 0) / MS


def test_input_of_60_percent_on_the_host_is_10_percent_on_the_device(tmp_path: Path) -> None:
    device = Accelerator()
    recording = Recording(tmp_path, machine=device.machine())
    training = Training(device, Costs(input_ms=6, forward_ms=1.5, backward_ms=2.5, optimizer_ms=5, launch_ms=0))
    training.after_backward = device.wait  # loss.item(): the input overlaps with the optimizer's work alone

    training.run()
    steps = recording.steps()

    timed = [step for step in steps if step.device is not None]
    assert len(timed) == 18
    for step in timed[1:]:
        assert on_host(step, "input") / (step.period_ns / MS) == pytest.approx(0.6, abs=0.01)
        assert on_device(step, "input") == pytest.approx(1.0, abs=0.01)
        assert [on_device(step, phase) for phase in ("forward", "backward", "optimizer")] == pytest.approx(
            [1.5, 2.5, 5.0], abs=0.01
        )
        assert sum(on_device(step, phase) for phase in PHASES) == pytest.approx(10, abs=0.01)


def test_two_copies_in_a_row_are_h2d(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Accelerator()
    real = torch.Tensor.to

    def copying(self: object, *args: object, **kwargs: object) -> object:
        device.launch(1.5)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", copying, raising=False)
    recording = Recording(tmp_path, machine=device.machine())
    training = Training(device, Costs(input_ms=1, launch_ms=0))
    training.copies, training.after_step = 2, device.wait

    training.run()
    steps = [step for step in recording.steps() if step.device is not None]

    assert len(steps) == 19
    assert all(on_device(step, "h2d") == pytest.approx(3.0, abs=0.01) for step in steps)


def test_run_ahead_is_bounded_around_the_truth_where_the_host_is_ahead(tmp_path: Path) -> None:
    device = Accelerator()
    recording = Recording(tmp_path, machine=device.machine())
    truth: list[float] = []
    training = Training(device, Costs(input_ms=1, forward_ms=4, backward_ms=3, optimizer_ms=1, launch_ms=0.2))
    training.num_steps = 60

    def note() -> None:
        truth.append(1e3 * (device.stream(0).busy_until - device.now_s))
        if len(truth) % 6 == 0:
            device.wait()

    training.after_step = note
    training.run()
    steps = recording.steps()

    bounds = [(step.step, step.device.run_ahead_ns) for step in steps if step.device is not None]
    known = [(truth[number - 1], low / MS, high / MS) for number, (low, high) in bounds if low is not None and high]
    assert len(known) > 40
    assert all(low - 0.06 <= true <= high + 0.06 for true, low, high in known)


def test_run_ahead_is_small_where_the_device_waits_for_the_host(tmp_path: Path) -> None:
    device = Accelerator()
    recording = Recording(tmp_path, machine=device.machine())
    training = Training(device, Costs(input_ms=0.2, launch_ms=1, forward_ms=0.1, backward_ms=0.1, optimizer_ms=0.1))
    training.after_forward = training.after_backward = lambda: device.host(0.15)
    training.num_steps = 60

    training.run()
    steps = recording.steps()

    highs = [step.device.run_ahead_ns[1] for step in steps[10:] if step.device is not None]
    assert len(highs) > 40
    assert all(high is not None and high < 0.3 * MS for high in highs)


def test_inferred_steps_are_divided_too(tmp_path: Path) -> None:
    device = Accelerator()
    recording = Recording(tmp_path, machine=device.machine())
    training = Training(device, Costs(input_ms=2, forward_ms=2, backward_ms=3, optimizer_ms=1, launch_ms=0))
    training.num_steps, training.after_step = 40, device.wait

    training.run(untraced)
    timed = [step for step in recording.steps() if step.device is not None]

    assert len(timed) >= 30
    for step in timed[5:-1]:
        assert [on_device(step, phase) for phase in ("input", "forward", "backward")] == pytest.approx(
            [2.0, 2.0, 3.0], abs=0.01
        )


def test_steps_whose_events_were_lost_have_no_device_times_and_the_others_do(tmp_path: Path) -> None:
    device = Accelerator()
    recording = Recording(tmp_path, machine=device.machine())
    training = Training(device, num_steps=40)
    capture_step(training, device, step=20)
    training.run()
    steps = recording.steps()

    assert [step.step for step in steps if step.device is None] == [1, 20, 21]
    assert len(steps) == 40


def test_a_reader_that_comes_late_finds_the_chain_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "RingWriter", functools.partial(RingWriter, num_edges=1 << 12))
    monkeypatch.setattr(clock, "_SAY_AGAIN", 1 << 9)
    device = Accelerator()
    recording = Recording(tmp_path, machine=device.machine())
    training = Training(device, Costs(input_ms=1, launch_ms=0), num_steps=500)
    training.after_step = device.wait
    training.run()
    steps = recording.steps()

    timed = [step for step in steps if step.device is not None]
    assert 100 < len(steps) < 400  # the ring has been lapped
    assert len(timed) > 0.7 * len(steps)
