"""Trains on two ranks that send to one another and reduce in a group of one's own, and prints what it computed."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import traceml

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
alone = [dist.new_group([other]) for other in range(world_size)][rank]
traceml.init()
torch.manual_seed(0)
model: Any = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def exchange(value: float) -> float:
    """Sends to the other rank, and gives what it sent."""
    mine, other = torch.full((1,), value), torch.zeros(1)
    if rank == 0:
        dist.send(mine, 1)
        dist.recv(other, 1)
    else:
        dist.recv(other, 0)
        dist.send(mine, 0)
    dist.all_reduce(other, group=alone)
    return float(other)


got = []
for step in range(12):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        model(torch.full((2, 4), 1.0 + rank)).sum().backward()
        got.append(exchange(step + rank / 10))
        optimizer.step()
traceml.shutdown()
got.append(exchange(99.0))
dist.barrier()
sys.stdout.write(f"{rank} {got} {[p.tolist() for p in model.parameters()]}\n")
sys.stdout.flush()
dist.destroy_process_group()
