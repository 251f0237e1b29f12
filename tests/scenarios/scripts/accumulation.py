"""A step of four micro-batches around one optimizer step; the last of 41 steps has two."""
import itertools

import traceml
from workload import make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=4, backward_ms=4, optimizer_ms=8, num_steps=162)
batches = iter(loader)
for _ in range(41):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        for x, y in itertools.islice(batches, 4):
            (criterion(model(x), y) / 4).backward()
        optimizer.step()
