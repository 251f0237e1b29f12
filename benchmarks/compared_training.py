"""Trains once for each order it reads from stdin, each in a forked process of its own: the runs that are compared.

An order is a line `LOGS NAME STEPS KIND INPUT FORWARD BACKWARD OPTIMIZER`. KIND `sleep`: each phase lasts so many
ms longer. KIND `cpu`: each is so many units of matrix products. A line on stdout says that the run is over.
With arguments, `PACKAGE STEPS KIND INPUT FORWARD BACKWARD OPTIMIZER`, it trains once, in this process, under that one.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

Work = Callable[[float], None]


class _Behind(torch.autograd.Function):
    """Does work when its gradient comes: a slow backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, work: Work, amount: float) -> Any:
        """The input, as it is."""
        ctx.work, ctx.amount = work, amount
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient, later."""
        ctx.work(ctx.amount)
        return grads[0], None, None


class Worked(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """A small model whose forward and backward take so much more."""

    def __init__(self, work: Work, forward: float, backward: float) -> None:
        super().__init__()
        self.work, self.amounts = work, (forward, backward)
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x: Any) -> Any:
        """Works, then computes."""
        self.work(self.amounts[0])
        return self.last(_Behind.apply(torch.relu(self.first(x)), self.work, self.amounts[1]))


class WorkedSGD(torch.optim.SGD):  # type: ignore[misc]  # likewise
    """SGD whose step takes so much more."""

    work: Work
    amount: float

    def step(self, closure: Any = None) -> Any:
        """Works, then updates."""
        self.work(self.amount)
        return super().step(closure)


class Batches(Dataset[Any]):  # type: ignore[misc]  # likewise
    """Whole batches, each made by so much work."""

    def __init__(self, num_batches: int, work: Work, amount: float) -> None:
        self.num_batches, self.work, self.amount = num_batches, work, amount

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, index: int) -> Any:
        self.work(self.amount)
        return torch.randn(4, 32), torch.randint(0, 4, (4,))


def sleep_ms(amount: float) -> None:
    """Sleeps."""
    time.sleep(amount / 1e3)


def multiply(amount: float) -> None:
    """Multiplies matrices: a unit is some 0.1 ms of an idle core."""
    left = torch.full((64, 64), 0.01)
    for _ in range(round(amount * 20)):
        left = left @ left + 0.01


def train(work: Work, num_steps: int, amounts: list[float], *, package: str = "traceml") -> None:
    """One traced training."""
    traceml = importlib.import_module(package)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Worked(work, amounts[1], amounts[2])
    optimizer = WorkedSGD(model.parameters(), lr=0.01)
    optimizer.work, optimizer.amount = work, amounts[3]
    traceml.init()
    for x, y in DataLoader(Batches(num_steps, work, amounts[0]), batch_size=None):
        with traceml.trace_step(model):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    if hasattr(traceml, "shutdown"):
        traceml.shutdown()


def work_of(kind: str) -> Work:
    """What a phase does."""
    return sleep_ms if kind == "sleep" else multiply


def serve() -> None:
    """Trains order by order until stdin ends."""
    for line in sys.stdin:
        logs, run_name, steps, kind, *amounts = line.split()
        pid = os.fork()
        if not pid:
            os.environ.update(TRACEML_LOGS_DIR=logs, TRACEML_RUN_NAME=run_name)
            train(work_of(kind), int(steps), [float(amount) for amount in amounts])
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(f"{run_name} {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        name, num_steps, kind, *amounts = sys.argv[1:]
        train(work_of(kind), int(num_steps), [float(amount) for amount in amounts], package=name)
    else:
        serve()
