"""Trains small models on two ranks in every way of DDP and the compiler, and prints their weights and graphs.

What it prints with TraceML is what it prints without: `TRACE=1` asks for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch._dynamo as dynamo
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

if os.environ.get("TRACE") == "1":
    import traceml

    step: Any = traceml.trace_step
else:
    step = lambda *_: contextlib.nullcontext()  # noqa: E731  # in its place


class Reducing(nn.Module):  # type: ignore[misc]  # torch is Any where it is not installed
    """Communicates by itself, inside the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return y + functional.all_reduce(y.detach(), "sum", dist.group.WORLD).sum()


class Checkpointed(nn.Module):  # type: ignore[misc]
    """Runs its forward once more in backward."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = plain(), reentrant

    def forward(self, x: Any) -> Any:
        return checkpoint(self.inner, x.requires_grad_(), use_reentrant=self.reentrant)


def plain() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def train(name: str, model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(6):
        with step(model):
            optimizer.zero_grad()
            x = torch.randn(4, 8, generator=generator)
            nn.functional.cross_entropy(model(x), torch.arange(4)).backward()
            optimizer.step()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    counters = dynamo.utils.counters
    breaks = sum(counters["graph_break"].values())
    if dist.get_rank() == 0:
        print(name, hashlib.sha256(weights).hexdigest()[:12], dict(counters["stats"]), breaks, dict(counters["frames"]))


torch.set_num_threads(1)
dist.init_process_group("gloo")
if os.environ.get("TRACE") == "1":
    traceml.init()
train("ddp", DistributedDataParallel(plain()))
train("static graph", DistributedDataParallel(plain(), static_graph=True))
train("unused", DistributedDataParallel(plain(), find_unused_parameters=True))
train("compile(ddp)", torch.compile(DistributedDataParallel(plain()), backend="eager"))
train("ddp(compiled)", DistributedDataParallel(torch.compile(plain(), backend="aot_eager")))
train("collective in the graph", torch.compile(Reducing(), backend="eager", fullgraph=True))
train("collective", Reducing())
train("checkpoint", DistributedDataParallel(Checkpointed(reentrant=False)))
train("reentrant checkpoint", DistributedDataParallel(Checkpointed(reentrant=True), static_graph=True))
dist.barrier()
dist.destroy_process_group()
