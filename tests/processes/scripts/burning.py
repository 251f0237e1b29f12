"""Trains for some seconds with steps of a millisecond, and burns microseconds in our look into each batch."""

from __future__ import annotations

import sys
import time
from typing import Any, Iterator

import torch

import traceml
from traceml.recorder.hooks import counting

BURN_S = float(sys.argv[1]) * 1e-6
torch.set_num_threads(1)
torch.manual_seed(0)
calls: list[None] = []


def look(batch: Any) -> int:
    """Stands for what counts the samples of a batch."""
    calls.append(None)
    until = time.perf_counter() + BURN_S
    while time.perf_counter() < until:
        pass
    return len(batch["x"])


class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc]  # torch is Any here
    """Batches whose size no loader knows."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({"x": torch.ones(8, 16)} for _ in range(2400))


counting.num_samples = look  # the seam: a hook that is slow
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
traceml.init()
loss = torch.zeros(())
for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
    with traceml.trace_step(model):
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch["x"]).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(1e-3)
sys.stdout.write(f"{loss.item()!r} {len(calls)}\n")
