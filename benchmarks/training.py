"""Trains a small CPU network step by step and writes down what each step cost: the script that is run bare and traced.

`--traced MODULE` names the tracer.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any, Callable, ContextManager

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SLICE = 20  # steps a CPU reading: thread_time_ns is a system call, half a microsecond a step if taken at each
WARM_STEPS = 300

Trace = Callable[[nn.Module], ContextManager[Any]]


def bare(_: nn.Module) -> ContextManager[Any]:
    """The place of `trace_step` in a script without TraceML."""
    return contextlib.nullcontext()


class Batches(Dataset[Any]):  # type: ignore[misc]  # mypy does not read torch
    """Batches made beforehand, handed out in turn, more than anybody wants."""

    def __init__(self) -> None:
        self._made = [(torch.randn(8, 32), torch.randint(0, 4, (8,))) for _ in range(16)]

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return self._made[index % len(self._made)]


class Training:
    """A two-layer network, prepared batches through a real DataLoader, SGD: some 150 us a step on a free core."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.criterion = nn.CrossEntropyLoss()
        self.loader = DataLoader(Batches(), batch_size=None)

    def run(self, num_steps: int, trace: Trace) -> dict[str, list[float]]:
        """Trains; gives the CPU of thread and process in us a step, one a slice, and the wall of each step."""
        thread: list[float] = []
        process: list[float] = []
        wall: list[float] = []
        thread_ns, process_ns, before = time.thread_time_ns(), time.process_time_ns(), time.perf_counter_ns()
        for i, (x, y) in enumerate(itertools.islice(self.loader, num_steps), start=1):
            with trace(self.model):
                self.optimizer.zero_grad(set_to_none=True)
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
            now = time.perf_counter_ns()
            wall.append((now - before) / 1e3)
            before = now
            if i % SLICE == 0:
                thread.append((time.thread_time_ns() - thread_ns) / 1e3 / SLICE)
                process.append((time.process_time_ns() - process_ns) / 1e3 / SLICE)
                thread_ns, process_ns, before = time.thread_time_ns(), time.process_time_ns(), time.perf_counter_ns()
        return {"thread_us": thread, "process_us": process, "wall_us": wall}


def main() -> None:
    """Trains as asked and writes the figures as JSON to `--to`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--traced", metavar="MODULE", help="traceml, or traceml_ai for upstream")
    parser.add_argument("--steps", type=int, default=10_000)
    args = parser.parse_args()
    found: dict[str, Any] = {"pid": os.getpid()}
    traceml: Any = importlib.import_module(args.traced) if args.traced else None
    if args.traced:
        traceml.init(mode="auto")
    trace = traceml.trace_step if args.traced else bare
    training = Training()
    found["first_step_s"] = time.monotonic()
    if args.steps > WARM_STEPS:
        training.run(WARM_STEPS, trace)
    found.update(training.run(args.steps, trace))
    found["end_s"] = time.monotonic()
    args.to.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
