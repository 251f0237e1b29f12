"""`continue` and `break` leave a step early: a step each, none failed, and no phase stays open."""
import traceml
from workload import make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(forward_ms=10, backward_ms=10, optimizer_ms=10)
for i, (x, y) in enumerate(loader, start=1):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        if i % 5 == 0 and i < 50:
            continue
        loss.backward()
        optimizer.step()
        if i == 50:
            break
