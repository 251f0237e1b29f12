"""Half of each step is a region that the script named itself."""
import time

import traceml
from workload import make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=8, backward_ms=8, optimizer_ms=4)
for x, y in loader:
    with traceml.trace_step(model):
        with traceml.region("augment"):
            time.sleep(0.020)
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
