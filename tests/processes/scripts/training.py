"""Trains a small model for 40 steps, then ends as the command line says."""

from __future__ import annotations

import os
import signal
import sys

import torch

import traceml

HOW = sys.argv[1]
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(320, 16), torch.randn(320, 4))
traceml.init()
for x, y in torch.utils.data.DataLoader(data, batch_size=8):
    with traceml.trace_step(model):
        optimizer.zero_grad(set_to_none=True)
        (model(x) - y).square().mean().backward()
        optimizer.step()
found = traceml.summary()
sys.stdout.write(f"summary of {found and found.get('traceml/run/steps')} steps\n")
sys.stdout.flush()
if HOW == "exception":
    raise ValueError("the loss is nan")
if HOW == "exit7":
    sys.exit(7)
if HOW == "_exit3":
    os._exit(3)
if HOW == "sigkill":
    os.kill(os.getpid(), signal.SIGKILL)
if HOW == "shutdown":
    traceml.shutdown()
    sys.stdout.write("training goes on\n")
