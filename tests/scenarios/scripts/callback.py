"""Steps of 10 ms, a callback of 30 ms after each, a checkpoint of 500 ms after every 20th: nothing hides."""
import time

import torch
import traceml
from workload import SlowBuffer, make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=4, backward_ms=4, optimizer_ms=2, num_steps=100)
for i, (x, y) in enumerate(loader, start=1):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    time.sleep(0.030)
    if i % 20 == 0:
        torch.save(model.state_dict(), SlowBuffer(ms=500))
