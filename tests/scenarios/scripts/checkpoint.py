"""A checkpoint of 200 ms every 20 steps of 20 ms: a third of the time, in one phase with its name."""
import torch
import traceml
from workload import SlowBuffer, make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=8, backward_ms=8, optimizer_ms=4, num_steps=110)
for i, (x, y) in enumerate(loader, start=1):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    if i % 20 == 0:
        torch.save(model.state_dict(), SlowBuffer(ms=200))
