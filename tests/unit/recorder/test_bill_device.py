"""Holds the bill to its promise beside an accelerator: events stay whole, and its signals can be given up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")

from tests.accelerator import MB, Accelerator  # noqa: E402
from tests.unit.recorder.conftest import Recording  # noqa: E402
from tests.unit.recorder.device_training import Training, bare_losses, told  # noqa: E402
from traceml.schema.bill import Bill, Shed  # noqa: E402
from traceml.schema.records import Fault, MemoryReading, RankIdentity, Watching  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.alone]


@pytest.fixture
def device() -> Accelerator:
    return Accelerator()


@pytest.fixture
def recording(device: Accelerator, tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path, machine=device.machine())
    made.session.pen.billing.interval_s = 0.0
    yield made
    made.session.close("end")


def of(recording: Recording, kind: type[Any]) -> list[Any]:
    return [body for body in recording.messages if isinstance(body, kind)]


def slow(real: Any, us: float) -> Any:
    """What does the same, so many microseconds later."""

    def call(*args: Any) -> Any:
        until = time.perf_counter() + us * 1e-6
        while time.perf_counter() < until:
            pass
        return real(*args)

    return call


def test_clocked_steps_have_their_device_times_like_any_other(tmp_path: Path) -> None:
    found = []
    for interval_s in (0.0, 1e9):
        device = Accelerator()
        (tmp_path / str(interval_s)).mkdir()
        recording = Recording(tmp_path / str(interval_s), machine=device.machine())
        recording.session.pen.billing.interval_s = interval_s
        training = Training(device, num_steps=100)
        training.after_step = lambda device=device: device.host(6)  # type: ignore[misc]  # the device keeps up
        assert training.run() == bare_losses(100)
        found.append([[round(ms, 3) for ms in step.values()] for step in told(recording).steps()])
        assert device.broken == []
        assert of(recording, Fault) == []
        num_clocked = of(recording, Bill)[-1].num_clocked
        assert num_clocked > 16 if interval_s == 0 else num_clocked == 1

    assert len(found[0]) >= 90
    assert found[0] == found[1]


def test_device_events_that_cost_too_much_are_given_up_and_the_hosts_clock_goes_on(
    device: Accelerator, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = type(device.event()).query
    monkeypatch.setattr(type(device.event()), "query", slow(query, 80))
    recording.session.limit(1.0)
    training = Training(device, num_steps=300)
    training.after_step = lambda: device.host(6)

    losses = training.run()
    found = told(recording)

    assert losses == bare_losses(300)
    assert [shed.signal for shed in of(recording, Shed)] == ["device clock"]
    last = of(recording, Shed)[0].step
    assert last - 3 <= len(list(found.steps())) <= last
    told_last = of(recording, Watching)[-1]
    assert (told_last.clock, told_last.clock_note.split(":")[0]) == ("host", f"events given up at step {last}")
    assert device.broken == []


def test_memory_that_costs_too_much_is_not_read_any_more(device: Accelerator, recording: Recording) -> None:
    device.allocate(5 * MB)
    watched: Any = recording.session.device
    memory = watched._memory
    memory._send = slow(memory._send, 20_000)
    recording.session.limit(15.0)  # of a step that a busy machine may make many times as long
    training = Training(device, num_steps=300)
    training.after_step = lambda: device.host(600)  # every step is measured

    losses = training.run()
    told(recording)

    assert losses == bare_losses(300)
    assert of(recording, Shed)[0].signal == "memory"
    last = of(recording, Shed)[0].step
    assert last - 2 <= max(reading.step for reading in of(recording, MemoryReading)) <= last
    assert device.counters._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"] == 5 * MB
    assert device.broken == []


def test_a_rank_says_which_device_it_runs_on(device: Accelerator, recording: Recording) -> None:
    device.device = 3
    Training(device, num_steps=20).run()
    recording.session.identify()  # as when it becomes a rank
    told(recording)

    assert of(recording, RankIdentity)[-1].device == "meta:3"
    assert of(recording, RankIdentity)[-1].device_uuid == "0000-3"
