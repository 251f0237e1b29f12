"""Holds the device clock to its promises in trouble: events never done, errors, captured graphs, devices, streams."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Iterator

import pytest

torch = pytest.importorskip("torch")

from tests.accelerator import Accelerator  # noqa: E402
from tests.unit.recorder.conftest import Recording  # noqa: E402
from tests.unit.recorder.device_training import Costs, Training, bare_losses, capture_step, told  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.records import Fault, Watching  # noqa: E402
from traceml.wire import edges  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def device() -> Iterator[Accelerator]:
    made = Accelerator()
    yield made
    assert made.broken == []


@pytest.fixture
def recording(device: Accelerator, tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path, machine=device.machine())
    yield made
    made.session.close("end")


def faults(recording: Recording) -> list[Fault]:
    return [message for message in recording.messages if isinstance(message, Fault)]


def clocks(recording: Recording) -> list[str]:
    return [message.clock for message in recording.messages if isinstance(message, Watching)]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_events_that_are_never_done_are_dropped_and_counted_and_the_chain_begins_anew(
    device: Accelerator, recording: Recording
) -> None:
    training = Training(device, num_steps=200)
    num = 0

    def script() -> None:
        nonlocal num
        num += 1
        device.hangs = 50 <= num < 60
        device.wait()

    training.after_step = script
    losses = training.run()
    found = told(recording)

    assert losses == bare_losses(200)
    assert found.num_lost >= 10 * 9
    assert len(list(found.steps())) > 100
    assert found.chain[max(found.ms)] > 1
    assert device.num_events < 64 * 14
    assert faults(recording) == []


def test_a_device_that_never_answers_costs_no_more_than_64_steps_of_events(
    device: Accelerator, recording: Recording
) -> None:
    device.hangs = True

    Training(device, num_steps=300).run()
    found = told(recording)

    assert found.ms == {}
    assert (
        found.num_lost == found.codes.count(edges.STEP_END) * 10 + 1 + 1
    )  # all of them; next() that delivered nothing
    assert device.num_events <= 66 * 10


@pytest.mark.parametrize("error", [RuntimeError("device not ready"), ValueError("must be recorded")])
def test_an_elapsed_time_that_fails_ends_the_clock_and_not_the_training(
    device: Accelerator, recording: Recording, error: Exception
) -> None:
    device.elapsed_error = error
    before = recording.session.pen.guard.is_on("forward")

    losses = Training(device).run()
    found = told(recording)

    note = [message.clock_note for message in recording.messages if isinstance(message, Watching)][-1]
    assert before
    assert losses == bare_losses()
    assert found.num_lost >= 1
    assert clocks(recording)[-1] == "host"
    assert str(error) in note
    assert [fault.hook for fault in faults(recording)] == ["device clock"]


def test_a_sticky_error_of_the_device_ends_the_clock_and_not_the_training(
    device: Accelerator, recording: Recording
) -> None:
    training = Training(device)
    num = 0

    def script() -> None:
        nonlocal num
        num += 1
        if num == 8:
            device.sticky = RuntimeError("CUDA error: an illegal memory access was encountered")

    training.after_forward = script
    losses = training.run()
    found = told(recording)

    assert losses == bare_losses()
    assert clocks(recording)[-1] == "host"
    assert found.num_lost >= 1
    assert "device clock" in [fault.hook for fault in faults(recording)]
    assert len(recording.session.pen.guard.hooks) == 0


@pytest.mark.parametrize("name", ["current", "record", "is_capturing", "event"])
def test_a_fault_in_what_is_asked_of_the_device_leaves_the_training_as_it_is(
    device: Accelerator, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(device, name, fails)
    made = Recording(tmp_path, machine=device.machine())
    losses = Training(device).run()
    made.session.close("end")
    told(made)

    assert losses == bare_losses()
    assert "device clock" in [fault.hook for fault in faults(made)]


def test_an_accelerator_that_cannot_be_asked_whether_it_is_used_is_a_fault(
    device: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> bool:
        raise RuntimeError("a fault")

    monkeypatch.setattr(device, "is_in_use", fails)
    made = Recording(tmp_path, machine=device.machine())
    losses = Training(device).run()
    told(made)

    assert losses == bare_losses()
    assert "device" in [fault.hook for fault in faults(made)]


# -- graphs ------------------------------------------------------------------------------------------------------------


def test_a_capture_in_a_step_is_not_broken_and_its_step_is_dropped(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=40)
    capture_step(training, device, step=20)
    losses = training.run()
    found = told(recording)

    assert losses == bare_losses(40)
    assert found.num_lost == 10  # every event of that step, and none else
    assert len(list(found.steps())) == 39 - 2  # its own, and the one whose period begins there
    assert faults(recording) == []


def test_while_another_thread_captures_nothing_is_recorded_or_asked(device: Accelerator, recording: Recording) -> None:
    """The capture is on a stream that is not this thread's current one."""
    training = Training(device, num_steps=40)
    num = 0
    from tests.accelerator import Stream

    aside = Stream(device, 0)
    graph = device.Graph()

    def script() -> None:
        nonlocal num
        num += 1
        device.wait()
        if num == 10:
            with device.on(aside):
                capture.__enter__()
        if num == 20:
            capture.__exit__()

    capture = device.graph(graph)
    training.after_step = script
    training.run()
    found = told(recording)

    assert found.num_lost == 10 * 10
    assert len(list(found.steps())) == 39 - 11


@pytest.mark.parametrize("name", ["begin", "end"])
def test_a_fault_of_ours_at_a_capture_leaves_it_as_it_is(
    device: Accelerator, recording: Recording, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from traceml.recorder.hooks.captures import Captures

    def fails(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Captures, name, fails)
    graph = device.Graph()
    with device.graph(graph):
        was_capturing = device.stream(0).is_capturing
    told(recording)

    assert was_capturing
    assert not device.stream(0).is_capturing
    assert "captures" in [fault.hook for fault in faults(recording)]


def test_the_scripts_error_at_a_capture_is_its_own_and_the_capture_is_over(
    device: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise ValueError("the script's")

    monkeypatch.setattr(device.Graph, "capture_begin", fails)
    made = Recording(tmp_path, machine=device.machine())
    with pytest.raises(ValueError, match="the script's"), trace_step():
        device.Graph().capture_begin()
    training = Training(device)
    training.after_step = device.wait
    training.run()
    found = told(made)

    assert len(list(found.steps())) == 20


def test_a_capture_that_fails_to_begin_or_whose_graph_is_gone_is_over(
    device: Accelerator, recording: Recording
) -> None:
    assert recording.session.device is not None
    assert recording.session.device.clock is not None
    captures = recording.session.device.clock._captures
    graph = device.Graph()
    captures.begin(graph)
    was_open = captures.is_open()

    del graph

    assert was_open
    assert not captures.is_open()


# -- devices and streams -----------------------------------------------------------------------------------------------


def test_two_devices_have_chains_of_their_own(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=30)

    def other() -> None:
        device.device = 1

    def back() -> None:
        device.device = 0
        device.wait()

    training.after_forward, training.after_step = other, back
    training.run()
    found = told(recording)

    by_device = {d: {found.chain[j] for j in found.ms if found.device[j] == d} for d in (0, 1)}
    assert {len(chains) for chains in by_device.values()} == {1}
    assert by_device[0].isdisjoint(by_device[1])
    assert found.num_lost == 0


def test_a_stream_of_the_users_is_timed_on_the_same_clock(device: Accelerator, recording: Recording) -> None:
    from tests.accelerator import Stream

    mine = Stream(device, 0)
    training = Training(device, Costs(input_ms=1, forward_ms=4, backward_ms=3, optimizer_ms=1, launch_ms=0))

    def enter() -> None:
        device._streams[0] = mine

    default = device.stream(0)

    def leave() -> None:
        device.wait()
        default.busy_until = max(default.busy_until, mine.busy_until)
        device.now_s = max(device.now_s, default.busy_until)
        device._streams[0] = default

    training.after_forward, training.after_step = enter, leave
    training.run()
    found = told(recording)

    steps = list(found.steps())
    assert len(steps) == 19
    assert len({found.chain[j] for j in found.ms}) == 1
    assert all(step["backward"] == pytest.approx(3, abs=0.01) for step in steps[1:])
    closed = {j for j in found.ms if found.codes[j] == edges.FORWARD + edges.CLOSE}
    assert any(found.ms[k] < found.ms[j] for j in closed for k in found.ms if k > j)  # the second stream was idle


def test_a_model_that_is_not_on_the_current_device_is_timed_on_its_own(
    device: Accelerator, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    from traceml.recorder import device as watched

    monkeypatch.setattr(watched, "home_of", lambda _: 3)
    training = Training(device)
    training.after_step = device.wait

    training.run()
    found = told(recording)

    assert {found.device[j] for j in list(found.ms)[30:]} == {3}


class _Placed(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch is Any where it is not installed
    """A module whose parameters say that they are on these devices."""

    def __init__(self, *indices: int) -> None:
        super().__init__()
        self._indices = indices

    def parameters(self, recurse: bool = True) -> Iterator[SimpleNamespace]:  # torch's
        assert recurse
        return iter([SimpleNamespace(device=SimpleNamespace(type="meta", index=index)) for index in self._indices])


@pytest.mark.parametrize(
    ("models", "home"), [(((3, 3),), 3), (((0, 1),), None), (((2,), (2,)), 2), (((1,), (2,)), None), ((), None)]
)
def test_home_is_the_one_device_of_the_traced_models(
    recording: Recording, models: tuple[tuple[int, ...], ...], home: int | None
) -> None:
    kept = [_Placed(*indices) for indices in models]
    assert recording.session.device is not None

    with trace_step(*kept):
        pass

    assert recording.session.device.clock is not None
    assert recording.session.device.clock.home == home
