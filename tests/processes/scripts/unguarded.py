"""Calls init() at its top level, as the README shows it; what it spawns imports it anew, and calls init() again."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import torch

import traceml

traceml.init()


def train(_rank: int = 0, num_steps: int = 10, context: str = "") -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.ones(4 * num_steps, 4))
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, num_workers=2 if context else 0, multiprocessing_context=context or None
    )
    for (batch,) in loader:
        with traceml.trace_step(model):
            optimizer.zero_grad(set_to_none=True)
            model(batch).sum().backward()
            optimizer.step()


def look(_rank: int = 0) -> None:
    assert traceml.summary() is None


if __name__ == "__main__":
    how, context = sys.argv[1:]
    if how == "workers":
        train(context=context)
    else:
        if how == "beside":
            train()
        for target in (look, train):
            starter: Any = multiprocessing.get_context(context)
            child = starter.Process(target=target, args=(0,))
            child.start()
            child.join()
            assert child.exitcode == 0
    print("trained")
