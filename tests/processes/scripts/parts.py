"""Trains in the processes that the command line names: this one, forked or spawned ones, ranks, or none."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import torch
import torch.distributed as dist

import traceml


def train(_rank: int = 0, num_steps: int = 10, num_workers: int = 0, context: Any = None) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.ones(4 * num_steps, 4))
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, num_workers=num_workers, multiprocessing_context=context if num_workers else None
    )
    for (batch,) in loader:
        with traceml.trace_step(model):
            optimizer.zero_grad(set_to_none=True)
            model(batch).sum().backward()
            optimizer.step()


def train_as_rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    train(num_steps=10 + rank)
    dist.barrier()
    dist.destroy_process_group()


def main(how: str, *more: str) -> None:
    if how == "workers":
        train(num_workers=1, context="fork")
        train(num_workers=1, context="spawn")
    elif how == "twice":
        train()
        child = multiprocessing.get_context("fork").Process(target=train, args=(0, 7))
        child.start()
        child.join()
    elif how == "second":
        child = multiprocessing.get_context("fork").Process(target=train, args=(0, 7))
        child.start()
        child.join()
        train()
    elif how == "ranks":
        torch.multiprocessing.spawn(train_as_rank, args=more, nprocs=2)
    elif how == "helper":  # trains in a child, and has an optimizer itself
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        torch.multiprocessing.spawn(train, nprocs=1)
    elif how == "torchrun":
        dist.init_process_group("gloo")
        train(num_steps=10 + dist.get_rank())
        dist.barrier()
        dist.destroy_process_group()
    elif how == "sweep":
        train()  # before init(): the session that is open already is adopted
        for _ in range(2):
            traceml.init(total_steps=10)
            train()
            traceml.shutdown()
    print("trained")


if __name__ == "__main__":
    main(*sys.argv[1:])
