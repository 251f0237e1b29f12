"""Three steps are too few for a verdict, however clear they look."""
import traceml
from workload import make

traceml.init(mode="auto")
model, criterion, optimizer, loader = make(batch_ms=20, forward_ms=8, backward_ms=8, optimizer_ms=4, num_steps=3)
for x, y in loader:
    with traceml.trace_step(model):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
