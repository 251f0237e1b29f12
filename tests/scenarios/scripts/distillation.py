"""A no-grad teacher that is given to trace_step runs before the student: it is forward, and the fetch stays input."""
import torch
import traceml
from torch import nn
from workload import Timed, make

traceml.init(mode="auto")
student, _, optimizer, loader = make(batch_ms=20, forward_ms=8, backward_ms=8, optimizer_ms=4)
teacher = Timed(forward_ms=8)
for x, _ in loader:
    with traceml.trace_step(student, teacher):
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = teacher(x)
        nn.functional.mse_loss(student(x), wanted).backward()
        optimizer.step()
