"""Prints what the recorder costs on a real device, and three trainings as the two clocks see them."""

from __future__ import annotations

import statistics
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

import torch

from tests.gpu.training import Found, Training, calibrated, recorded, untraced
from traceml.analysis.steps import StepBuilder
from traceml.recorder.session import Session
from traceml.recorder.step import trace_step
from traceml.schema.phases import PHASE_INDEX
from traceml.wire.ring import EdgeBatch

_BLOCK = 50  # steps between two switches
_NUM_PAIRS = 12


def show() -> None:
    """All of it."""
    print("\n| step | bare period | with us | events a step | training thread | budget | of the period | budget |")
    print("|---|---|---|---|---|---|---|---|")
    print(cost("about 2 ms", calibrated(2), num_pairs=_NUM_PAIRS))
    print(cost("about 40 ms", calibrated(40), num_pairs=5, block=20))
    print("\n| training | input, host | input, device | forward | backward | optimizer | h2d |")
    print("|---|---|---|---|---|---|---|")
    for name, training, num_steps in (
        ("the device has work queued", calibrated(20, sleep_s=0.002), 40),
        ("a slow loader", Training(depth=2, width=1024, rows=512, sleep_s=0.02), 40),
        ("the loss is read each step", _reading(calibrated(10, sleep_s=0.001)), 40),
    ):
        print(two_clocks(name, training, num_steps), flush=True)
    print()


def _reading(training: Training) -> Training:
    training.every = 1
    return training


def cost(name: str, training: Training, *, num_pairs: int, block: int = _BLOCK) -> str:
    """Blocks with and without `trace_step` in turn, each behind an idle device: a row of the table.

    The session, and with it the hooks, is made and closed around each traced block; its first steps are left out.
    """
    training.copies = False
    _block(training, block, untraced)
    cpu_us, periods_ms, bare_ms = [], [], []
    for _ in range(num_pairs):
        bare = _block(training, block, untraced)
        with tempfile.TemporaryDirectory(prefix="traceml-gpu-") as folder:
            session = Session(Path(folder))
            _block(training, 10, trace_step)  # the pool is filled here
            traced = _block(training, block, trace_step)
            session.close("end")
        cpu_us.append(1e6 * (traced[0] - bare[0]))
        periods_ms.append(1e3 * traced[1])
        bare_ms.append(1e3 * bare[1])
    with recorded() as found:
        training.run(40)
    num_steps = len(list(found[0].times.steps()))
    num_events = len(found[0].times.ms) / max(1, num_steps)
    bare_period, period = statistics.median(bare_ms), statistics.median(periods_ms)
    cells = (
        name,
        f"{bare_period:.2f} ms",
        f"{period:.2f} ms",
        f"{num_events:.1f}",
        f"{statistics.median(cpu_us):.1f} us ({min(cpu_us):.1f} to {max(cpu_us):.1f})",
        "60 us",
        f"{100 * (period / bare_period - 1):.2f} %",
        "0.5 %",
    )
    return "| " + " | ".join(cells) + " |"


def _block(training: Training, num_steps: int, step: Any) -> tuple[float, float]:
    """CPU of the training thread a step, and wall a step, in seconds."""
    x = torch.randn(training._rows, training._width, device="cuda")  # one training
    torch.cuda.synchronize()
    cpu, wall = time.thread_time(), time.perf_counter()
    for _ in range(num_steps):
        with step(training.model):
            training.model(x).square().mean().backward()
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=True)
    cpu = time.thread_time() - cpu  # before the wait: a waiting thread may burn CPU
    torch.cuda.synchronize()
    return cpu / num_steps, (time.perf_counter() - wall) / num_steps


def two_clocks(name: str, training: Training, num_steps: int) -> str:
    """A row: what the host's clock says of the input, and what the device's says of each phase."""
    training.run(3, untraced)
    with recorded() as found:
        training.run(num_steps)
    shares = [found[0].share(phase) for phase in ("input", "forward", "backward", "optimizer", "h2d")]
    cells = (name, f"{100 * _host_input(found[0]):.0f} %", *(f"{100 * share:.0f} %" for share in shares))
    return "| " + " | ".join(cells) + " |"


def _host_input(found: Found) -> float:
    """The input's share of the host's periods."""
    builder = StepBuilder()
    for message in found.messages:
        builder.learn(message)
    builder.feed(EdgeBatch(0, array("d", found.times.stamps), found.times.codes, 0))
    steps = builder.take().steps[5:]
    return sum(step.phase_ns[PHASE_INDEX["input"]] or 0 for step in steps) / sum(step.period_ns for step in steps)
