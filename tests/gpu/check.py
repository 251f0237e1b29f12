"""Checks on one real GPU what the unit tests check on a stand-in, and prints the CUDA row of the budgets.

    make gpu-check

Under 4 minutes, needs torch 2.11 or newer and nothing else, installs nothing. Where there is no GPU it says so and ends
with exit code 0. Each check is a function that asserts; all run, and one that fails makes the exit code 1.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

SKIPPED = "gpu-check: skipped, there is no GPU that torch can use here"


def has_gpu() -> bool:
    """Whether there is torch, and a device it can use."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def phases_add_up() -> str:
    """The device's periods are divided whole, and are the host's over many steps."""
    from tests.gpu.training import Training, recorded, rest_and_phases, steps_wall_ms, untraced

    training = Training()
    training.every = 1
    training.run(5, untraced)
    with recorded() as found:
        training.run(60)
    steps = list(found[0].times.steps())[5:]
    device_ms, host_ms = sum(sum(step.values()) for step in steps), steps_wall_ms(found[0])
    assert len(steps) >= 50, f"only {len(steps)} of 60 steps have device times"
    assert abs(device_ms / host_ms - 1) < 0.02, f"device {device_ms:.2f} ms, host {host_ms:.2f} ms"
    names = rest_and_phases(found[0])
    assert {"input", "h2d", "forward", "backward", "optimizer"} <= set(names), names
    return f"{len(steps)} steps: device {device_ms:.1f} ms, host {host_ms:.1f} ms"


def input_is_0_while_work_is_queued() -> str:
    """A loader of 2 ms behind a device that is busy longer is not exposed; behind one that is idle it is."""
    from tests.gpu.training import Training, calibrated, recorded, untraced

    busy = calibrated(20, sleep_s=0.002)
    busy.run(3, untraced)
    with recorded() as found:
        busy.run(30)
    hidden = found[0].share("input")
    idle = Training(depth=2, width=256, rows=64, sleep_s=0.02)
    with recorded() as found:
        idle.run(40)
    exposed_ms = found[0].mean_ms("input")
    assert hidden < 0.02, f"input is {100 * hidden:.1f} % of a device that never waits"
    assert 15 < exposed_ms < 40, f"{exposed_ms:.1f} ms exposed of a sleep of 20 ms"
    return f"{100 * hidden:.2f} % hidden; {exposed_ms:.1f} ms of 20 ms exposed"


def run_ahead_is_bounded() -> str:
    """Polls bound the offset of the two clocks where the device is idle; where it is behind they say so."""
    from tests.gpu.training import Training, calibrated, recorded, untraced

    idle = Training(depth=8, width=64, rows=16)
    idle.copies = False
    idle.run(5, untraced)
    with recorded() as found:
        idle.run(200)
    lowest, highest = found[0].offset_ms()
    busy = calibrated(20)
    with recorded() as behind:
        busy.run(30)
    pending = [is_done for _, _, is_done in behind[0].times.polls].count(False)
    assert -0.01 < highest - lowest < 0.2, f"the offset lies between {lowest:.3f} and {highest:.3f} ms"
    assert pending > len(behind[0].times.polls) / 2, f"{pending} of {len(behind[0].times.polls)} polls pending"
    return f"offset known within {1e3 * (highest - lowest):.0f} us; {pending} of {len(behind[0].times.polls)} pending"


def copies_are_h2d() -> str:
    """64 MB from pageable and from pinned memory."""
    from tests.gpu.training import Training, recorded, untraced

    told = []
    for pin in (False, True):
        training = Training(depth=1, width=4096, rows=4096, pin=pin)
        training.run(3, untraced)
        with recorded() as found:
            training.run(20)
        h2d_ms = found[0].mean_ms("h2d")
        assert h2d_ms > 0.3, f"{h2d_ms:.3f} ms for 64 MB"
        told.append(f"{'pinned' if pin else 'pageable'} {h2d_ms:.2f} ms")
    return ", ".join(told)


def captures_are_unbroken() -> str:
    """Graphs captured in a step, by torch's own helper and in another thread; each replays to what eager gives."""
    import torch

    from tests.gpu.training import DEVICE, Training, recorded
    from traceml.recorder.step import trace_step
    from traceml.schema.records import Fault

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
    import torch

    from traceml.recorder.step import trace_step

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
    import torch

    from tests.gpu.training import DEVICE, recorded, untraced
    from traceml.recorder.step import trace_step
    from traceml.schema.records import MemoryReading
    from traceml.wire.edges import STEP_PEAK

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
    import torch

    from tests.gpu.training import DEVICE, Training, recorded
    from traceml.schema.records import OutOfMemory

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
    import torch

    from tests.gpu.training import Training, recorded, untraced

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
    import torch

    from tests.gpu.training import DEVICE
    from traceml.recorder.step import trace_step

    x = torch.randn(1024, 1024).pin_memory()
    for _ in range(num_steps):
        with trace_step(training.model):
            training.model(x.to(DEVICE, non_blocking=True)).square().mean().backward()
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=True)


def losses_are_bit_identical() -> str:
    """With and without us, a stream of the script's own in between."""
    import torch

    from tests.gpu.training import DEVICE, Training, recorded, untraced

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
    import torch

    from tests.gpu.training import DEVICE, recorded
    from traceml.recorder.step import trace_step

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
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin", "CUDA_LAUNCH_BLOCKING": "0"},
    )
    assert "ended" in done.stdout, (done.stdout, done.stderr[-2000:])
    assert "host" in done.stdout, done.stdout
    return done.stdout.strip().splitlines()[-1]


CHECKS: tuple[Callable[[], str], ...] = (
    phases_add_up,
    input_is_0_while_work_is_queued,
    run_ahead_is_bounded,
    copies_are_h2d,
    captures_are_unbroken,
    the_scripts_peaks_are_its_own,
    no_room_is_told,
    nothing_waits_for_the_device,
    losses_are_bit_identical,
    compiled_graphs_stay_whole,
    a_device_that_fails_ends_the_clock_only,
)


def main() -> int:
    """Runs every check, then the figures."""
    if not has_gpu():
        print(SKIPPED)
        return 0
    import torch

    from tests.gpu import figures

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}", flush=True)
    num_failed = 0
    for check in CHECKS:
        began = time.monotonic()
        try:
            word, told = "ok  ", check()
        except Exception as error:  # noqa: BLE001  # the others are wanted too
            num_failed += 1
            word, told = "FAIL", f"{type(error).__name__}: {error}"
            traceback.print_exc()
        print(f"{word} {check.__name__.replace('_', ' ')}: {told} ({time.monotonic() - began:.1f} s)", flush=True)
    figures.show()
    print(f"gpu-check: {len(CHECKS) - num_failed} of {len(CHECKS)} right")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
