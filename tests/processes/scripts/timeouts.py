"""Raises a Timeout from a timer's signal at random moments of a tight loop, as often as told; none may get lost."""

from __future__ import annotations

import random
import signal
import sys
from typing import Any

import torch

import traceml


class Timeout(Exception):  # noqa: N818  # as users call it
    """What the user's handler raises."""


num_raised = num_caught = num_lost = num_steps = 0


def handler(_number: int, _frame: Any) -> None:
    """Raises, wherever it is."""
    global num_raised  # noqa: PLW0603
    num_raised += 1
    raise Timeout


def main(num_times: int, how: str) -> None:
    """`how`: "traced", or "inferred" without a trace_step."""
    global num_caught, num_lost, num_steps  # noqa: PLW0603
    random.seed(1)
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, handler)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = torch.utils.data.DataLoader(torch.ones(64, 2), batch_size=8)
    traceml.init()
    for batch in loader:  # what torch imports at its first backward catches everything
        model(batch).sum().backward()
        optimizer.step()
    while num_caught < num_times:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 8e-4))
            while True:
                for batch in loader:
                    if how == "inferred":
                        model(batch).sum().backward()
                        optimizer.step()
                    else:
                        with traceml.trace_step(model), traceml.region("all"):
                            model(batch).sum().backward()
                            optimizer.step()
                    num_steps += 1
                if num_raised > num_caught + num_lost:
                    num_lost += 1
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 8e-4))
        except Timeout:
            num_caught += 1
            torch.set_grad_enabled(True)  # an exception within torch's own no_grad() leaves it off
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for batch in [*loader] * 5:  # whole again
        with traceml.trace_step(model) if how == "traced" else torch.enable_grad():
            model(batch).sum().backward()
            optimizer.step()
        num_steps += 1
    print(f"steps {num_steps}", file=sys.stderr)
    print(f"raised {num_raised} caught {num_caught} lost {num_lost} weights {model.weight.sum().isnan().item()}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
