"""Trains a tiny model on one core that others use as well: steps of 0.3 ms, from memory or a loader that sleeps."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import traceml

CORE, NUM_STEPS, SLEEP_S = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])


class Items(Dataset[Any]):  # type: ignore[misc]  # torch is Any where it is not installed
    """Items in memory; a store that must be waited for gives each after a while."""

    def __len__(self) -> int:
        return NUM_STEPS

    def __getitem__(self, _: int) -> tuple[torch.Tensor, torch.Tensor]:
        if SLEEP_S:
            time.sleep(SLEEP_S)
        return torch.ones(16), torch.ones(4)


torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
traceml.init()
os.sched_setaffinity(0, {CORE})
for x, y in DataLoader(Items(), batch_size=1):
    with traceml.trace_step(model):
        optimizer.zero_grad(set_to_none=True)
        (model(x) - y).square().mean().backward()
        optimizer.step()
