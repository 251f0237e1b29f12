"""The last next() of an epoch takes 0.5 s and brings no batch: the rest's time, never input."""
import time

import torch
import traceml
from torch.utils.data import DataLoader, IterableDataset
from workload import make


class Shard(IterableDataset):
    def __iter__(self):
        for i in range(120):
            yield torch.randn(32), i % 4
        time.sleep(0.500)


traceml.init(mode="auto")
model, criterion, optimizer, _ = make(forward_ms=8, backward_ms=8, optimizer_ms=4)
loader = DataLoader(Shard(), batch_size=4)
for _ in range(3):
    for x, y in loader:
        with traceml.trace_step(model):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
