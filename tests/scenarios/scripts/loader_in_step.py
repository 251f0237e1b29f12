"""The loader is read inside the step: its wait is input all the same, and not in the step's rest."""
import traceml
from workload import make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(batch_ms=20, forward_ms=8, backward_ms=8, optimizer_ms=4)
batches = iter(loader)
for _ in range(60):
    with traceml.trace_step(model):
        x, y = next(batches)
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
