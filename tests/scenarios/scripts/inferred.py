"""No trace_step: 30 steps of two micro-batches, input-bound, with an evaluation after every tenth."""
import torch
import traceml
from workload import make

traceml.init()
model, criterion, optimizer, loader = make(batch_ms=20, forward_ms=6, backward_ms=6, optimizer_ms=4)
_, _, _, validation = make(num_steps=4, batch_ms=5)
for i, (x, y) in enumerate(loader, start=1):
    (criterion(model(x), y) / 2).backward()
    if i % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
    if i % 20 == 0:
        with torch.no_grad():
            for vx, _ in validation:
                model(vx)
