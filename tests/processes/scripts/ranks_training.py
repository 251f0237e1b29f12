"""Trains a small model on every rank over gloo; `--rank` does at `--where` what `--ms`, `--do` or `--at` says."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import traceml

parser = argparse.ArgumentParser()
parser.add_argument("--where", default="none")  # input, forward, backward: late there in each step, or raises
parser.add_argument("--rank", type=int, default=1)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--model", default="ddp")  # ddp, buffers, no_sync, own, fsdp1, fsdp2, pairs, part, groups, one
parser.add_argument(
    "--do", default=""
)  # kill, raise, exit, sleep, pause, validate, delegate, workers, sleepers, leave: at step --at; late
parser.add_argument("--at", type=int, default=0)
parser.add_argument("--seconds", type=float, default=7.0)
parser.add_argument("--bare", action="store_true")  # no line of TraceML's
parser.add_argument("--ms", type=float, default=20.0)  # how late
args = parser.parse_args()
LATE_S = args.ms / 1e3


def passes(seconds: float, *, step: int) -> None:
    """Takes its time; with `--do=raise` it raises instead, in the step after `--at`."""
    if args.do != "raise":
        time.sleep(seconds)
    elif step > args.at:
        raise ValueError("of the script's own")


class Rows(Dataset[Any]):  # type: ignore[misc]  # torch is Any where it is not installed
    def __len__(self) -> int:
        return int(args.steps) * 4 * (4 if args.model == "no_sync" else 1)

    def __getitem__(self, index: int) -> Any:
        if is_late and args.where == "input":
            passes(LATE_S / 4, step=index // 4 + 1)
        if is_late and args.do == "sleep" and index == args.at * 4:
            time.sleep(args.seconds)
        return torch.randn(8), index % 4


class Heavy(Dataset[Any]):  # type: ignore[misc]
    """A single batch of an evaluation, long in the making by a worker that uses its core for it, or sleeps."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        end = time.monotonic() + args.seconds
        while index == 0 and time.monotonic() < end:
            time.sleep(args.seconds if args.do == "sleepers" else 0.0)
        return torch.randn(8), index % 4


class Late(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        time.sleep(2e-3)
        if is_late and args.where == "backward":
            passes(LATE_S, step=step)
        return gradient


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.norm = nn.BatchNorm1d(16) if args.model == "buffers" else nn.Identity()

    def forward(self, x: Any) -> Any:
        time.sleep(2e-3)
        if is_late and args.where == "forward":
            passes(LATE_S, step=step)
        return self.last(Late.apply(self.norm(self.first(x))))


def happens(step: int) -> None:  # noqa: C901  # a line a thing that happens
    if step != args.at or not args.at:
        return
    if args.do == "pause":
        time.sleep(args.seconds)
    if args.do == "validate":
        if dist.get_rank() == 0:
            time.sleep(args.seconds)
        dist.barrier()
    if not is_late:
        return
    if args.do in ("workers", "sleepers"):
        with torch.no_grad():
            for x, _ in DataLoader(Heavy(), batch_size=2, num_workers=2):
                raw(x)
    if args.do == "delegate":
        busy = f"import time; end = time.monotonic() + {args.seconds}\nwhile time.monotonic() < end: pass"
        subprocess.run([sys.executable, "-c", busy], check=True)
    if args.do == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if args.do == "exit":
        os._exit(5)
    if args.do == "leave":
        sys.exit(0)  # its data is over
    if args.do == "raise" and args.where == "none":
        raise ValueError("of the script's own")


torch.set_num_threads(1)
dist.init_process_group("gloo")
is_late = dist.get_rank() == args.rank
if not args.bare:
    traceml.init(mode="auto")
traced = contextlib.nullcontext if args.bare else traceml.trace_step
torch.manual_seed(0)
raw = Model()
part = dist.new_group([0, 1]) if args.model in ("part", "groups") else None
model: Any = raw if args.model not in ("ddp", "buffers", "no_sync") else DistributedDataParallel(raw)
if args.model == "fsdp1":
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
if args.model == "fsdp2":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Rows(), batch_size=4)
step = 0
for step, (x, y) in enumerate(loader, 1):
    if args.model == "no_sync" and step % 4:
        with traced(model), model.no_sync():
            nn.functional.cross_entropy(model(x), y).backward()
        continue
    with traced(model):
        nn.functional.cross_entropy(model(x), y).backward()
        if args.model in ("own", "part"):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # this line is named
        if args.model in ("part", "groups") and dist.get_rank() < 2:
            dist.all_reduce(torch.ones(4), group=part)
        if args.model == "pairs":
            if dist.get_rank() == 0:
                dist.send(torch.ones(4), 1)
            elif dist.get_rank() == 1:
                dist.recv(torch.ones(4), 0)
            dist.barrier()
        optimizer.step()
        optimizer.zero_grad()
    happens(step)
dist.barrier()
dist.destroy_process_group()
if args.do == "late" and is_late:
    sys.exit(5)
