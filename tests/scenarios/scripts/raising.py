"""Every tenth step raises in forward, and the script goes on: six failed steps, none of them measured in."""
import time

import traceml
from workload import make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=8, backward_ms=8, optimizer_ms=4)
for i, (x, y) in enumerate(loader, start=1):
    try:
        with traceml.trace_step(model):
            optimizer.zero_grad()
            if i % 10 == 0:
                time.sleep(0.100)
                model(x[:, :3])
            criterion(model(x), y).backward()
            optimizer.step()
    except RuntimeError as error:
        print("skipped:", error)
