"""Four gloo ranks, one of them slow in every second block of steps: what its delay costs everyone is known.

where: input gap forward backward optimizer between
"""

import argparse
import time

import torch
import torch.distributed as dist
import traceml
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from workload import Items, SlowSGD, Timed

parser = argparse.ArgumentParser()
parser.add_argument("--where", default="input")
parser.add_argument("--ms", type=float, default=20)
parser.add_argument("--rank", type=int, default=1)
parser.add_argument("--block", type=int, default=70)
parser.add_argument("--blocks", type=int, default=3)
args = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
traceml.init(mode="auto")
torch.manual_seed(0)
raw = Timed(forward_ms=4, backward_ms=4)
model = DistributedDataParallel(raw)
optimizer = SlowSGD(model.parameters(), lr=0.01)
items = Items(args.blocks * args.block * 4)
criterion = torch.nn.CrossEntropyLoss()
batches = iter(DataLoader(items, batch_size=4))
for step in range(args.blocks * args.block):
    is_late = dist.get_rank() == args.rank and step // args.block % 2 == 1
    late = {args.where: args.ms if is_late else 0.0}
    items.item_ms = late.get("input", 0) / 4
    raw.forward_ms, raw.backward_ms = 4 + late.get("forward", 0), 4 + late.get("backward", 0)
    optimizer.step_ms = 2 + late.get("optimizer", 0)
    x, y = next(batches)
    with traceml.trace_step(model):
        optimizer.zero_grad()
        time.sleep(late.get("gap", 0) / 1e3)
        criterion(model(x), y).backward()
        optimizer.step()
    time.sleep(late.get("between", 0) / 1e3)
dist.barrier()
dist.destroy_process_group()
