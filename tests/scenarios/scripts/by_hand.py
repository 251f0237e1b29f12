"""Nothing is hooked, everything is wrapped by hand, an optimizer that is not torch's among it: as if all were hooked."""
import traceml
from workload import make


class Optimizer:
    """Not torch's: it has a step, and nothing else that could be hooked."""

    def __init__(self, inner):
        self.inner = inner

    def step(self):
        self.inner.step()


traceml.init(mode="manual")
model, criterion, torchs, loader = make(batch_ms=20, forward_ms=8, backward_ms=8, optimizer_ms=4)
model, optimizer = traceml.wrap_forward(model), traceml.wrap_optimizer(Optimizer(torchs))
for x, y in traceml.wrap_dataloader(loader):
    with traceml.trace_step():
        torchs.zero_grad()
        traceml.wrap_backward(criterion(model(x), y)).backward()
        optimizer.step()
