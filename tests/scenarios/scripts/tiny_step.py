"""20,000 steps of about 50 us without loader or optimizer: each is counted, and none is lost."""
import torch
import traceml
import workload  # noqa: F401  # one thread

traceml.init(mode="auto")
model = torch.nn.Linear(4, 1)
x = torch.randn(1, 4)
for _ in range(20_000):
    with traceml.trace_step(model):
        model(x).backward()
