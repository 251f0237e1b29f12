"""Workers start anew at each of 4 epochs and need 0.6 s for it; within an epoch nobody waits for data."""
import time

import traceml
from torch.utils.data import DataLoader
from workload import Items, make


def slow_start(_):
    time.sleep(0.600)


traceml.init(mode="auto")
model, criterion, optimizer, _ = make(forward_ms=24, backward_ms=24, optimizer_ms=12)
loader = DataLoader(Items(64), batch_size=4, num_workers=2, worker_init_fn=slow_start)
for _ in range(4):
    for x, y in loader:
        with traceml.trace_step(model):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
