"""Holds the memory readings to their promises: the true peak of a step, and the script's own peaks untouched."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")

from tests.accelerator import MB, Accelerator  # noqa: E402
from tests.unit.recorder.conftest import Recording  # noqa: E402
from tests.unit.recorder.device_training import Training, bare_losses, told, untraced  # noqa: E402
from traceml.recorder import device as watched  # noqa: E402
from traceml.recorder.step import region, trace_step  # noqa: E402
from traceml.schema.records import Fault, MemoryReading  # noqa: E402
from traceml.schema.room import OutOfMemory  # noqa: E402
from traceml.wire import edges  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def device() -> Accelerator:
    return Accelerator()


@pytest.fixture
def recording(device: Accelerator, tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path, machine=device.machine())
    yield made
    made.session.close("end")


def readings(recording: Recording) -> list[MemoryReading]:
    return [message for message in recording.messages if isinstance(message, MemoryReading)]


def peak(device: Accelerator, name: str = "allocated_bytes", index: int = 0) -> int:
    """What the script reads, by the path that torch's own functions take."""
    found: int = device.counters._cuda_memoryStats(index)[name]["all"]["peak"]
    return found


def test_a_steps_peak_is_what_was_held_inside_it_not_at_its_end(device: Accelerator, recording: Recording) -> None:
    device.allocate(5 * MB)
    training = Training(device, num_steps=30)
    training.after_forward = lambda: device.allocate(9 * MB)
    training.after_backward = lambda: device.free(9 * MB)
    training.after_step = lambda: device.host(100)

    training.run()
    found = told(recording)

    allocated = [size for code, size in found.peaks if code == edges.STEP_PEAK]
    assert len(allocated) >= 4
    assert set(allocated) == {14 * MB}
    assert {size for code, size in found.peaks if code == edges.STEP_PEAK_RESERVED} == {14 * MB}
    assert {(r.allocated_bytes, r.peak_bytes, r.capacity_bytes) for r in readings(recording)} == {
        (5 * MB, 14 * MB, 100 * MB)
    }


def test_a_peak_stands_behind_the_end_of_its_step(device: Accelerator, recording: Recording) -> None:
    """Every step has another peak; each that is told is that of the step whose end is the newest before it."""
    training = Training(device, num_steps=60)
    num = 0

    def script() -> None:
        nonlocal num
        num += 1
        device.allocate(num * MB)
        device.free(num * MB)

    training.after_forward = script
    training.after_step = lambda: device.host(100)
    training.run()
    found = told(recording)

    step = 0
    seen = []
    for code, stamp in zip(found.codes, found.stamps):
        step += code == edges.STEP_END
        if code == edges.STEP_PEAK:
            seen.append((step, int(stamp) // MB))
    assert len(seen) > 5
    assert all(at == size for at, size in seen)


def test_no_peak_is_lost_between_the_steps_that_are_measured(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=100)
    num = 0

    def script() -> None:
        nonlocal num
        num += 1
        size = (50 if num == 37 else 5) * MB
        device.allocate(size)
        device.free(size)

    training.after_forward = script
    training.after_step = lambda: device.host(30)
    training.run()
    told(recording)

    assert max(r.peak_bytes or 0 for r in readings(recording)) == 50 * MB


def test_the_counters_are_not_read_at_every_step(device: Accelerator, recording: Recording) -> None:
    training = Training(device, num_steps=200)
    training.after_step = device.wait
    began = device.now_s

    training.run()

    assert device.counters.num_reads <= 2 * ((device.now_s - began) / 0.5 + 1)


def script_of(device: Accelerator, training: Training, seed: int) -> list[tuple[int, int, int, int]]:
    """A training that allocates, reads its peaks and resets them at random, but the same each time; what it read."""
    dice = random.Random(seed)
    found: list[tuple[int, int, int, int]] = []
    held: list[int] = []

    def use() -> None:
        device.host(dice.choice((1, 40, 700)))
        if dice.random() < 0.6:
            held.append(dice.randrange(1, 20) * MB // 4)
            device.allocate(held[-1])
        if held and dice.random() < 0.6:
            device.free(held.pop(0))
        what = dice.random()
        if what < 0.2:
            device.counters._cuda_resetPeakMemoryStats(0)
        elif what < 0.7:
            stats = device.counters._cuda_memoryStats(0)
            found.append(
                (
                    stats["allocated_bytes"]["all"]["peak"],
                    stats["reserved_bytes"]["large_pool"]["peak"],
                    stats["active_bytes"]["all"]["peak"],
                    stats["allocated_bytes"]["all"]["current"],
                )
            )

    training.after_fetch = training.after_forward = training.after_backward = training.after_step = use
    return found


@pytest.mark.parametrize("seed", range(8))
def test_over_50_steps_the_script_reads_the_same_peaks_with_and_without_us(tmp_path: Path, seed: int) -> None:
    bare, traced = Accelerator(), Accelerator()
    training = Training(bare, num_steps=50)
    without = script_of(bare, training, seed)
    training.run(untraced)

    made = Recording(tmp_path, machine=traced.machine())
    training = Training(traced, num_steps=50)
    with_us = script_of(traced, training, seed)
    training.run()
    num_measured = len([code for code, _ in told(made).peaks if code == edges.STEP_PEAK])

    assert len(without) > 50
    assert with_us == without
    assert num_measured > 5


def test_torchs_own_readers_see_the_same(device: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda's functions themselves, on the stand-in's counters."""
    for name in ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats"):
        monkeypatch.setattr(torch._C, name, getattr(device.counters, name), raising=False)
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    counters = device.counters
    device.counters = torch._C
    monkeypatch.setattr(device, "watch_room", lambda _: False)
    made = Recording(tmp_path, machine=device.machine())
    device.counters = counters
    device.allocate(30 * MB)
    device.free(30 * MB)

    for _ in range(3):
        with trace_step():
            device.host(600)
    before = torch.cuda.max_memory_allocated(0), torch.cuda.max_memory_reserved(0)
    stats = torch.cuda.memory_stats(0)["allocated_bytes.all.peak"]
    torch.cuda.reset_peak_memory_stats(0)
    after = torch.cuda.max_memory_allocated(0)
    made.session.close("end")

    assert before == (30 * MB, 30 * MB)
    assert stats == 30 * MB
    assert after == 0
    assert torch._C._cuda_memoryStats == counters._cuda_memoryStats


def test_after_a_shutdown_the_scripts_peak_is_still_right_and_we_go_when_it_resets(
    device: Accelerator, recording: Recording
) -> None:
    device.allocate(40 * MB)
    device.free(40 * MB)
    training = Training(device, num_steps=5)
    training.after_step = lambda: device.host(600)
    training.run()
    told(recording)

    before = peak(device)
    stays = "_cuda_memoryStats" in vars(device.counters)
    device.counters._cuda_resetPeakMemoryStats(0)
    after = peak(device)

    assert before == 40 * MB
    assert stays
    assert after == 0
    assert device.counters._cuda_memoryStats.__func__ is type(device.counters)._cuda_memoryStats


def test_many_sessions_in_one_process_do_not_pile_up(device: Accelerator, tmp_path: Path) -> None:
    device.allocate(40 * MB)
    device.free(40 * MB)
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = Recording(folder, machine=device.machine())
        training = Training(device, num_steps=5)
        training.after_step = lambda: device.host(600)
        training.run()
        made.session.close("end")
        assert peak(device) == 40 * MB

    reader: Any = device.counters._cuda_memoryStats

    assert not hasattr(reader.__wrapped__, "__wrapped__")


def test_the_memory_of_the_models_device_is_read(
    device: Accelerator, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "home_of", lambda _: 3)
    device.allocate(7 * MB, device=3)
    device.allocate(1 * MB, device=0)
    training = Training(device, num_steps=40)
    training.after_step = lambda: device.host(200)

    training.run()
    told(recording)

    assert readings(recording)[-1].allocated_bytes == 7 * MB


@pytest.mark.parametrize("where", ["_cuda_memoryStats", "_cuda_resetPeakMemoryStats"])
def test_counters_that_fail_are_a_fault_and_not_an_exception(
    device: Accelerator, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: int) -> None:
        raise RuntimeError("sticky device error")

    monkeypatch.setattr(device.counters, where, fails)
    made = Recording(tmp_path, machine=device.machine())
    training = Training(device)
    training.after_step = lambda: device.host(600)

    losses = training.run()
    told(made)

    assert losses == bare_losses()
    assert [m.is_off for m in made.messages if isinstance(m, Fault) and m.hook == "memory"] == [False, False, True]


def test_the_scripts_own_error_from_the_counters_is_its_own(device: Accelerator, recording: Recording) -> None:
    del recording

    with pytest.raises(TypeError):
        device.counters._cuda_memoryStats()  # as the script may


# -- no room -----------------------------------------------------------------------------------------------------------


def ooms(recording: Recording) -> list[OutOfMemory]:
    return [message for message in recording.messages if isinstance(message, OutOfMemory)]


def test_an_allocation_without_room_that_the_script_catches_is_in_the_record(
    device: Accelerator, recording: Recording
) -> None:
    training = Training(device, num_steps=10)
    num = 0

    def script() -> None:
        nonlocal num
        num += 1
        if num == 6:
            with pytest.raises(MemoryError), region("probe"):
                device.allocate(120 * MB)

    training.after_forward = script
    training.run()
    told(recording)

    assert [(oom.step, oom.phase, oom.requested_bytes, oom.device) for oom in ooms(recording)] == [
        (6, "region:probe", 120 * MB, 0)
    ]
    assert ooms(recording)[0].capacity_bytes == 100 * MB


@pytest.mark.parametrize(
    ("place", "phase"),
    [
        ("after_fetch", "between_steps"),
        ("after_forward", "in_step"),
        ("forward", "forward"),
        ("backward", "backward"),
        ("after_step", "between_steps"),
    ],
)
def test_the_phase_that_was_open_is_named(device: Accelerator, recording: Recording, place: str, phase: str) -> None:
    training = Training(device, num_steps=3)

    def script(*_: object) -> None:
        with pytest.raises(MemoryError):
            device.allocate(120 * MB)

    if place == "forward":
        training.model.linear.register_forward_pre_hook(script)
    elif place == "backward":
        training.model.linear.weight.register_hook(script)
    else:
        setattr(training, place, script)
    training.run()
    told(recording)

    assert {oom.phase for oom in ooms(recording)} == {phase}


def test_an_allocation_without_room_that_ends_the_training_is_in_the_record(
    device: Accelerator, recording: Recording
) -> None:
    training = Training(device, num_steps=10)
    training.after_forward = lambda: device.allocate(120 * MB)

    with pytest.raises(MemoryError):
        training.run()
    told(recording)

    assert [(oom.step, oom.phase) for oom in ooms(recording)] == [(1, "in_step")]


def test_another_threads_allocation_without_room_is_told_by_this_one(device: Accelerator, recording: Recording) -> None:
    import threading

    def script() -> None:
        with pytest.raises(MemoryError):
            device.allocate(120 * MB)

    def wait() -> None:
        thread = threading.Thread(target=script)
        thread.start()
        thread.join()

    training = Training(device, num_steps=2)
    training.after_forward = wait
    training.run()
    told(recording)

    assert len(ooms(recording)) == 2


def test_after_the_session_the_observer_is_silent(device: Accelerator, recording: Recording) -> None:
    told(recording)

    with pytest.raises(MemoryError):
        device.allocate(120 * MB)

    assert len(device.counters.observers) == 1
    assert ooms(recording) == []


def test_a_fault_of_ours_in_the_observer_leaves_the_allocation_as_it_is(
    device: Accelerator, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    from traceml.recorder import room

    def fails(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(room, "open_phase", fails)
    with trace_step(), pytest.raises(MemoryError):
        device.allocate(120 * MB)
    told(recording)

    assert [m.hook for m in recording.messages if isinstance(m, Fault)] == ["out of memory"]
