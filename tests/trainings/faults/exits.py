"""Ends a training by an exception or an exit code while every hook of TraceML fails."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.utils.data import DataLoader, TensorDataset

if os.environ.get("TRACED"):
    import traceml
    from traceml.recorder import pen

    real = pen.Pen.__init__

    def __init__(self, *args):
        real(self, *args)
        self.clock = lambda: 1 / 0

    pen.Pen.__init__ = __init__
    traceml.init()
    step = traceml.trace_step
else:
    import contextlib

    def step(_):
        return contextlib.nullcontext()


torch.manual_seed(1)
model = torch.nn.Linear(8, 2)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4):
    with step(model):
        sgd.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        sgd.step()
    print(repr(loss.item()))
torch.save(model, "model.pt")
if sys.argv[1:] == ["raise"]:
    raise ValueError("the loss is nan")
sys.exit(7)
