"""Checks on a real GPU that nothing is broken: captures, peaks, losses, graphs; and that nothing waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable

import torch

from tests.gpu.training import DEVICE, Training, recorded, untraced
from traceml.recorder.step import trace_step
from traceml.schema.records import Fault, MemoryReading
from traceml.schema.room import OutOfMemory
from traceml.wire.edges import STEP_PEAK

ROOT = Path(__file__).resolve().parents[2]


def captures_are_unbroken() -> str:
    """Graphs captured in a step, by torch's own helper and in another thread; each replays to what eager gives."""
    training = Training(depth=2, width=64, rows=16)
    x = torch.ones(16, 64, device=DEVICE)
    with recorded() as found:
        training.run(10)
        with torch.no_grad():
            eager = training.model(x) * 2  # and warms up what a capture may not do for the first time
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with trace_step(training.model), torch.no_grad(), torch.cuda.graph(graph):
            replayed = training.model(x) * 2
        replayed.zero_()
        graph.replay()
        torch.cuda.synchronize()
        is_right = torch.allclose(replayed, eager)
        graphed = torch.cuda.make_graphed_callables(torch.nn.Linear(64, 64).to(DEVICE), (x,))
        graphed(x).sum().backward()
        errors = _steps_while_another_thread_captures(x)
        training.run(10)
    faults = found[0].of(Fault)
    assert is_right, "the replay computes something else"
    assert not errors, errors
    assert not faults, faults
    assert found[0].times.num_lost > 0, "events of the captured step are not counted as lost"
    return f"3 captures; {found[0].times.num_lost} events dropped with their steps"


def _steps_while_another_thread_captures(x: Any) -> list[BaseException]:
    """In the default mode a query from any thread would break that capture; the steps here do nothing of their own."""
    errors: list[BaseException] = []
    is_open = threading.Event()

    def capture() -> None:
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                is_open.set()
                tripled = x * 3
                time.sleep(0.2)
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(tripled, x * 3)
        except BaseException as error:  # noqa: BLE001  # told by the check
            errors.append(error)
        finally:
            is_open.set()

    thread = threading.Thread(target=capture)
    thread.start()
    is_open.wait()
    while thread.is_alive():
        with trace_step():
            time.sleep(0.002)
    thread.join()
    return errors


def the_scripts_peaks_are_its_own() -> str:
    """Over 50 steps of reads and resets the script reads the same with and without us; ours is the step's."""

    def script(step: Callable[[], Any]) -> list[tuple[int, ...]]:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        seen: list[tuple[int, ...]] = []
        for number in range(50):
            with step():
                used = torch.empty((1 + number * 7 % 13) << 20, dtype=torch.uint8, device=DEVICE)
                time.sleep(0.02)
                del used
            if number % 9 == 4:
                torch.cuda.reset_peak_memory_stats()
            if number % 3 == 0:
                stats = torch.cuda.memory_stats()
                seen.append(
                    (
                        torch.cuda.max_memory_allocated() - base,
                        stats["active_bytes.all.peak"] - base,
                        torch.cuda.max_memory_reserved(),
                        torch.cuda.memory_allocated() - base,
                    )
                )
        return seen

    without = script(lambda: untraced(None))
    with recorded() as found:
        with_us = script(trace_step)
    assert with_us == without, (with_us, without)
    peaks = [size for code, size in found[0].times.peaks if code == STEP_PEAK]
    readings = found[0].of(MemoryReading)
    assert peaks, "no step's peak was told"
    assert all(reading.peak_bytes >= reading.allocated_bytes for reading in readings)
    return f"{len(without)} reads equal; {len(peaks)} steps measured of 50"


def no_room_is_told() -> str:
    """An allocation that cannot be, caught by the script: step, phase and size."""
    training = Training(depth=1, width=64, rows=16)
    size = 1 << 42

    def too_much(number: int) -> None:
        if number == 4:
            try:
                torch.empty(size, dtype=torch.uint8, device=DEVICE)
            except torch.cuda.OutOfMemoryError:
                return
            raise AssertionError("4 TB were there")

    training.in_step = too_much
    with recorded() as found:
        training.run(8)
    told = found[0].of(OutOfMemory)
    assert [(one.step, one.phase) for one in told] == [(4, "in_step")], told
    assert told[0].requested_bytes >= size, told
    return f"step 4, in_step, {told[0].requested_bytes >> 40} TB"


def nothing_waits_for_the_device() -> str:
    """No synchronise of ours: every way to one is counted, and torch raises at its own."""
    calls: list[str] = []
    places = [
        (torch.cuda, "synchronize"),
        (torch.cuda.Stream, "synchronize"),
        (torch.cuda.Event, "synchronize"),
        (torch.cuda.Event, "wait"),
        (torch.cuda.Stream, "wait_event"),
    ]
    real = [getattr(owner, name) for owner, name in places]

    def counted(name: str, call: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if any("recorder" in frame.filename for frame in traceback.extract_stack()):
                calls.append(name)
            return call(*args, **kwargs)

        return wrapped

    training = Training(pin=True)
    training.run(3, untraced)
    for (owner, name), call in zip(places, real):
        setattr(owner, name, counted(name, call))
    try:
        with recorded() as found:
            torch.cuda.set_sync_debug_mode("error")
            try:
                _train_without_reading(training, 50)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    finally:
        for (owner, name), call in zip(places, real):
            setattr(owner, name, call)
    assert not calls, calls
    assert found[0].times.num_lost < 64 * 12
    return "0 calls in 50 steps"


def _train_without_reading(training: Any, num_steps: int) -> None:

    x = torch.randn(1024, 1024).pin_memory()
    for _ in range(num_steps):
        with trace_step(training.model):
            training.model(x.to(DEVICE, non_blocking=True)).square().mean().backward()
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=True)


def losses_are_bit_identical() -> str:
    """With and without us, a stream of the script's own in between."""

    def losses(step: Any) -> list[float]:
        training = Training(depth=3, width=256, rows=64)
        aside = torch.cuda.Stream()

        def script(_: int) -> None:
            with torch.cuda.stream(aside):
                torch.ones(1000, device=DEVICE).sum()

        training.in_step = script
        return training.run(40, step) if step is not None else training.run(40)

    without = losses(untraced)
    with recorded() as found:
        with_us = losses(None)
    assert with_us == without
    assert found[0].times.num_lost <= 64 * 12
    return "40 losses"


def compiled_graphs_stay_whole() -> str:
    """`fullgraph=True` over a copy to the device, with the hook on it."""

    def work(x: Any) -> Any:
        return x.to(DEVICE) * 2

    with recorded():
        compiled = torch.compile(work, backend="eager", fullgraph=True)
        for _ in range(3):
            with trace_step():
                result = compiled(torch.ones(4))
    assert result.device.type == DEVICE
    return "one graph"


def a_device_that_fails_ends_the_clock_only() -> str:
    """In a process of its own: a device-side assert is the script's error, and ours says nothing but one line."""
    script = """
import sys, tempfile, pathlib, torch
from traceml.recorder.session import Session
from traceml.recorder.step import trace_step
torch.zeros(1, device="cuda")
session = Session(pathlib.Path(tempfile.mkdtemp(prefix="traceml-gpu-")))
for _ in range(5):
    with trace_step():
        torch.ones(8, device="cuda").sum()
error = None
try:
    with trace_step():
        torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")].sum().item()
except Exception as found:
    error = type(found).__name__
for _ in range(5):
    with trace_step():
        pass
session.close("end")
print("ended", error, session.pen.clock_used)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )
    assert "ended" in done.stdout, (done.stdout, done.stderr[-2000:])
    assert "host" in done.stdout, done.stdout
    return done.stdout.strip().splitlines()[-1]
