"""Trains 60 steps of 20 ms, and stops in the 30th as the command line says; the last line is the loss."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch

import traceml


def main(how: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    traceml.init()
    for step in range(1, 61):
        with traceml.trace_step(model):
            secret = step * 1001
            optimizer.zero_grad(set_to_none=True)
            loss = model(torch.ones(8, 16)).square().mean()
            loss.backward()
            time.sleep(0.02)
            if how == "breakpoint" and step == 30:
                breakpoint()  # noqa: T100  # what is tested
            if how == "stop" and step == 30:
                os.kill(os.getpid(), signal.SIGSTOP)
            while how == "held" and step == 30 and not Path("go").exists():
                time.sleep(0.01)
            optimizer.step()
    print(f"loss {loss.item():.6f} {secret}")


if __name__ == "__main__":
    main(sys.argv[1])
