"""Trains 120 steps; in the 30th a debugger may come, the 50th waits for it, the 80th stops in it."""

# ruff: noqa: T100  # what is tested
from __future__ import annotations

import sys
import time

import debugpy
import torch

import traceml

model = torch.nn.Linear(4, 2)
traceml.init()
for step in range(1, 121):
    with traceml.trace_step(model):
        model(torch.ones(1, 4)).sum().backward()
        time.sleep(0.003)
        if step == 30:
            debugpy.listen(("127.0.0.1", int(sys.argv[1])))
            print("listening", flush=True)
        if step == 50:
            debugpy.wait_for_client()
        if step == 80:
            debugpy.breakpoint()
print("trained")
