"""Raises, where the command line says, an exception that nobody catches."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch

WHERE, *HOW = sys.argv[1:]


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        if WHERE == "forward":
            raise ValueError("in forward")
        return self.layer(x)


class Broken(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(_: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(_: Any, grad: Any) -> Any:
        if WHERE == "backward":
            raise ValueError("in backward")
        return grad


class Data(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> Any:
        if WHERE in ("loader", "worker") and at == 5:
            raise ValueError("in the dataset")
        if WHERE == "ctrl-c" and at == 5:
            raise KeyboardInterrupt
        return torch.ones(2) * at


class Optimizer(torch.optim.SGD):  # type: ignore[misc]
    def step(self, closure: Any = None) -> Any:
        if WHERE == "optimizer":
            raise ValueError("in the optimizer")
        return super().step(closure)


def main() -> None:
    model = Model()
    optimizer = Optimizer(model.parameters(), lr=0.1)
    step: Any = contextlib.nullcontext
    if "traced" in HOW:
        import traceml

        traceml.init()

        def step() -> Any:
            return traceml.trace_step(model)

    for batch in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=int(WHERE == "worker")):
        with step():
            optimizer.zero_grad()
            try:
                Broken.apply(model(batch).sum()).backward()
            except ValueError as error:
                raise RuntimeError("the step failed") from error
            optimizer.step()
    raise ValueError("in plain code")


main()
