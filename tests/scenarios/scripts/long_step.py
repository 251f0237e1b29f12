"""Ten steps of so many seconds each (the first argument): slow, healthy, and no hang."""
import sys

import traceml
from workload import make

ms = float(sys.argv[1]) * 1e3
traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=0.4 * ms, backward_ms=0.5 * ms, optimizer_ms=0.1 * ms, num_steps=10)
for x, y in loader:
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
