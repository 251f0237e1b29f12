"""Holds the device clock to its promises, on a stand-in whose truth is known: times, polls, its begin and its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest

torch = pytest.importorskip("torch")

from tests.accelerator import Accelerator  # noqa: E402
from tests.unit.recorder.conftest import Recording  # noqa: E402
from tests.unit.recorder.device_training import Costs, Training, bare_losses, told, untraced  # noqa: E402
from traceml.recorder import session  # noqa: E402
from traceml.recorder.accelerator import NO_ACCELERATOR  # noqa: E402
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


# -- the truth ---------------------------------------------------------------------------------------------------------


def test_input_of_60_percent_on_the_host_is_10_percent_on_the_device(device: Accelerator, recording: Recording) -> None:
    costs = Costs(input_ms=6, forward_ms=1.5, backward_ms=2.5, optimizer_ms=5, launch_ms=0)
    training = Training(device, costs)
    training.after_backward = device.wait  # loss.item(): the input overlaps with the optimizer's work alone

    training.run()
    found = told(recording)
    steps = list(found.steps())

    assert len(steps) == 18  # the last step's end was not done yet when the session closed
    for step in steps[1:]:
        assert step["input"] == pytest.approx(1.0, abs=0.01)
        assert step["forward"] == pytest.approx(1.5, abs=0.01)
        assert step["backward"] == pytest.approx(2.5, abs=0.01)
        assert step["optimizer"] == pytest.approx(5.0, abs=0.01)
        assert sum(step.values()) == pytest.approx(10.0, abs=0.01)


def test_on_the_same_training_the_host_clock_says_60_percent(device: Accelerator, recording: Recording) -> None:
    costs = Costs(input_ms=6, forward_ms=1.5, backward_ms=2.5, optimizer_ms=5, launch_ms=0)
    training = Training(device, costs)
    training.after_backward = device.wait

    training.run()
    steps = recording.steps()

    from traceml.schema.phases import PHASE_INDEX

    share = [(step.phase_ns[PHASE_INDEX["input"]] or 0) / step.period_ns for step in steps[2:]]
    assert share == pytest.approx([0.6] * 18, abs=0.01)


def test_exposed_input_is_0_while_the_device_has_work(device: Accelerator, recording: Recording) -> None:
    Training(device, Costs(input_ms=3, forward_ms=2, backward_ms=3, optimizer_ms=1), num_steps=40).run()

    steps = list(told(recording).steps())

    assert len(steps) > 10
    assert all(step["input"] == pytest.approx(0, abs=0.001) for step in steps[2:])
    assert all(sum(step.values()) == pytest.approx(6, abs=0.01) for step in steps[2:])


def test_a_step_has_at_most_12_events_with_two_copies(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=100)
    training.copies = 2
    training.after_step = device.wait

    training.run()
    found = told(recording)

    num_steps = len(list(found.steps()))
    assert num_steps == 99
    assert len(found.ms) == 12 * 100 + 2  # and the exhausting next()
    assert found.codes_timed().count(edges.H2D) == found.codes_timed().count(edges.H2D + edges.CLOSE) == 100


def test_an_event_is_never_earlier_than_its_stamp(device: Accelerator, recording: Recording) -> None:
    start = device.now_s
    training = Training(device)
    training.after_step = device.wait

    training.run()
    found = told(recording)

    first = min(found.ms)
    offset = found.stamps[first] - start  # an idle device: the first event is done when it is recorded
    assert all(found.ms[j] / 1e3 + offset >= found.stamps[j] - start - 1e-6 for j in found.ms)


def test_polls_bound_the_two_clocks_offset_where_the_device_is_idle(device: Accelerator, recording: Recording) -> None:
    training = Training(device, Costs(input_ms=1, launch_ms=1, forward_ms=0.1, backward_ms=0.1, optimizer_ms=0.1))
    training.after_forward = training.after_backward = lambda: device.host(0.2)

    training.run()
    found = told(recording)

    at_ms = [1e3 * stamp if code < edges.FIRST_VALUE else 0 for stamp, code in zip(found.stamps, found.codes)]
    lowest = max(at_ms[j] - found.ms[j] for j in found.ms)  # an event is done after it was recorded
    ready = [(entry, edge) for entry, edge, is_done in found.polls if is_done and edge in found.ms]
    highest = min(max(at_ms[:entry]) - found.ms[edge] for entry, edge in ready)
    assert 0 <= highest - lowest + 1e-3 < 0.2


def test_a_device_that_is_behind_is_polled_as_pending(device: Accelerator, recording: Recording) -> None:
    Training(device, Costs(input_ms=0.1, forward_ms=10, launch_ms=0.1), num_steps=10).run()

    found = told(recording)

    pending = [found.codes[edge] for _, edge, is_done in found.polls if not is_done]
    assert len(pending) > 4 * 9
    assert pending.count(edges.OPTIMIZER + edges.CLOSE) == 10


def test_a_poll_names_an_edge_before_it(device: Accelerator, recording: Recording) -> None:
    training = Training(device)
    training.after_step = device.wait

    training.run()
    found = told(recording)

    assert found.polls
    assert all(edge < at for at, edge, _ in found.polls)


# -- getting to use it -------------------------------------------------------------------------------------------------


def test_a_device_that_is_first_used_after_init_is_found(device: Accelerator, tmp_path: Path) -> None:
    device.in_use = False
    recording = Recording(tmp_path, machine=device.machine())
    training = Training(device, num_steps=60)

    def begin() -> None:
        device.in_use = True

    training.after_forward = begin
    training.after_step = device.wait
    training.run()
    found = told(recording)

    assert clocks(recording)[0] == "host"
    assert clocks(recording)[-1] == "device"
    assert len(list(found.steps())) >= 55


def test_where_no_accelerator_is_used_it_is_said_and_nothing_is_asked(device: Accelerator, tmp_path: Path) -> None:
    device.in_use = False
    recording = Recording(tmp_path, machine=device.machine())
    before = recording.session.pen.clock

    losses = Training(device).run()
    found = told(recording)

    notes = [message.clock_note for message in recording.messages if isinstance(message, Watching)]
    assert losses == bare_losses()
    assert found.ms == {}
    assert (device.num_events, device.num_queries, device.counters.num_reads) == (0, 0, 0)
    assert recording.session.pen.clock is before
    assert set(notes) == {NO_ACCELERATOR}


def test_inferred_steps_have_device_times(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=40)
    training.after_step = device.wait

    losses = training.run(untraced)
    found = told(recording)

    assert losses == bare_losses(40)
    assert found.codes_timed().count(edges.OPTIMIZER + edges.CLOSE) >= 35
    assert found.codes_timed().count(edges.FORWARD) >= 35
    assert found.num_lost <= 4  # what came behind the last update


def test_losses_are_what_they_are_without_us(device: Accelerator, recording: Recording) -> None:
    assert Training(device).run() == bare_losses()


def test_events_are_used_again(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=500)
    training.after_step = device.wait

    training.run()

    assert device.num_records > 10 * 500
    assert device.num_events <= 100


def test_a_long_evaluation_between_two_steps_is_told_piece_by_piece(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=4)
    model = training.model

    def evaluate() -> None:
        with torch.no_grad():
            for _ in range(5000):
                model(torch.zeros(1, 4))
                device.wait()

    training.after_step = evaluate
    training.run()
    found = told(recording)

    assert found.num_lost == 0
    assert found.codes_timed().count(edges.EVAL) == 20_000
    assert device.num_events < 2000


def test_a_region_and_what_is_wrapped_by_hand_have_events(device: Accelerator, tmp_path: Path) -> None:
    recording = Recording(tmp_path, only=(), machine=device.machine())
    from traceml.recorder.step import region, trace_step
    from traceml.recorder.wraps import wrap_dataloader, wrap_forward

    forward = wrap_forward(lambda x: x)
    for x in wrap_dataloader([1, 2, 3, 4, 5]):
        with trace_step(), region("augment"):
            device.launch(2)
            device.wait()
            forward(x)
    found = told(recording)

    first = edges.FIRST_REGION
    timed = found.codes_timed()
    assert [timed.count(code) for code in (edges.INPUT, edges.FORWARD, first, first + edges.CLOSE)] == [6, 5, 5, 5]


# -- the end -----------------------------------------------------------------------------------------------------------


def test_at_the_end_what_is_done_is_told_and_the_rest_is_counted(device: Accelerator, recording: Recording) -> None:
    Training(device, Costs(input_ms=0.1, forward_ms=50), num_steps=10).run()
    now = device.now_s

    found = told(recording)

    assert device.now_s == now  # nobody waited
    assert found.num_lost > 0
    assert found.num_lost + len(found.ms) == 10 * 10 + 2


def test_shutdown_leaves_nothing_behind(device: Accelerator, tmp_path: Path) -> None:
    names = ("to", "cuda", "copy_")
    before = [getattr(torch.Tensor, name) for name in names]
    methods = dict(device.Graph.__dict__), dict(device.graph.__dict__)
    made = Recording(tmp_path, machine=device.machine())
    during = [getattr(torch.Tensor, name) for name in names]

    Training(device).run()
    made.session.close("end")

    assert all(one is not other for one, other in zip(before, during))
    assert [getattr(torch.Tensor, name) for name in names] == before
    assert not any(name in torch.Tensor.__dict__ for name in names)
    assert (dict(device.Graph.__dict__), dict(device.graph.__dict__)) == methods
    assert made.session.pen.guard.hooks == frozenset()
    num_records = device.num_records
    Training(device).run()
    assert device.num_records == num_records


def test_a_forked_child_asks_nothing_of_the_device(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=5)
    training.run()
    child = os.fork()
    if child == 0:
        num = device.num_queries, device.num_records, device.num_events
        ok = torch.Tensor.to is torch._C.TensorBase.to and recording.session.pen.owner is None
        training.run(untraced)
        os._exit(0 if ok and num == (device.num_queries, device.num_records, device.num_events) else 1)

    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0


def test_the_child_is_told_of_the_fork(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=5)
    training.run()
    num = device.num_queries, device.num_records, device.num_events, device.counters.num_reads

    session.forget_in_child()
    training.run()

    assert num == (device.num_queries, device.num_records, device.num_events, device.counters.num_reads)


def test_a_collection_between_an_edges_number_and_its_event_harms_nothing(
    device: Accelerator, recording: Recording
) -> None:
    import gc

    training = Training(device)
    real = device.current

    def collecting() -> int:
        gc.collect(0)
        return real()

    device.current = collecting  # type: ignore[method-assign]
    training.after_step = device.wait
    losses = training.run()
    found = told(recording)

    assert losses == bare_losses()
    assert not {edges.GC, edges.GC + edges.CLOSE} & set(found.codes_timed())
    assert len(list(found.steps())) == 19
