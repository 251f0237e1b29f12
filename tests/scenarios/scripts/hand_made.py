"""Batches made by hand in 20 ms, no DataLoader: input was never measured, the rest is large; `--region` gives it a name, `--wrap` makes it input."""
import contextlib
import sys
import time

import torch
import traceml
from workload import make


def get_batch():
    time.sleep(0.020)
    return torch.randn(4, 32), torch.randint(0, 4, (4,))


traceml.init(mode="auto")
model, criterion, optimizer, _ = make(forward_ms=8, backward_ms=8, optimizer_ms=4)
batches = iter(get_batch, None)
if "--wrap" in sys.argv:
    batches = traceml.wrap_dataloader(batches)
for _ in range(60):
    with traceml.region("get_batch") if "--region" in sys.argv else contextlib.nullcontext():
        x, y = next(batches)
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
