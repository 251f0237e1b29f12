"""Trains five trials in one process, as a sweep does; the third one fails, and the script goes on."""

from __future__ import annotations

import sys

import torch

import traceml


class Pruned(Exception):  # noqa: N818  # as sweeps call it
    """A trial that is not worth its time."""


def objective(trial: int, *, is_traced: bool) -> float:
    """One trial: a model, an optimizer and a loader of its own, 12 steps; the third raises in its eighth."""
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * trial)
    loss = torch.zeros(())
    for step, batch in enumerate(torch.utils.data.DataLoader(torch.ones(48, 4), batch_size=4), 1):
        with traceml.trace_step(model) if is_traced else torch.enable_grad():
            optimizer.zero_grad(set_to_none=True)
            loss = model(batch).square().sum()
            loss.backward()
            if trial == 3 and step == 8:
                raise Pruned
            optimizer.step()
    return float(loss)


def main(how: str) -> None:
    """`how`: "runs": a run a trial; "loop": no line of ours around them; "bare": none at all."""
    torch.manual_seed(0)
    for trial in range(1, 6):
        if how == "runs":
            traceml.init()
        try:
            print(f"{objective(trial, is_traced=how != 'bare'):.6f}")
        except Pruned:
            print("pruned")
        finally:
            if how == "runs":
                traceml.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
