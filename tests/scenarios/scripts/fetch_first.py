"""A trainer fetches the four micro-batches of a step first, then trains on them: four training fetches a step."""
import itertools

import traceml
from workload import make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(batch_ms=5, forward_ms=2, backward_ms=2, optimizer_ms=4, num_steps=160)
batches = iter(loader)
for _ in range(40):
    group = list(itertools.islice(batches, 4))
    with traceml.trace_step(model):
        optimizer.zero_grad()
        for x, y in group:
            (criterion(model(x), y) / 4).backward()
        optimizer.step()
