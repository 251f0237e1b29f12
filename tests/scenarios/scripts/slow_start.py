"""Five steps of 500 ms, then 95 of 10 ms: the five are warm-up, shown, and in no verdict."""
import traceml
from workload import make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=494, backward_ms=4, optimizer_ms=2, num_steps=100)
for i, (x, y) in enumerate(loader):
    model.forward_ms = 494 if i < 5 else 4
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
