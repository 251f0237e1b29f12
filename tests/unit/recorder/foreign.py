"""Makes loaders and optimizers that are not torch's, and the training that uses them."""

from __future__ import annotations

import time
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from traceml.recorder.step import trace_step  # noqa: E402

ALL = {"input", "forward", "backward", "optimizer"}


class Foreign:
    """A loader of nobody we know: it has a length, a size and an attribute, and makes its batches itself."""

    batch_size = 4

    def __init__(self, num_batches: int = 5, wait_s: float = 0.0) -> None:
        self.num_batches, self.wait_s, self.epoch = num_batches, wait_s, 0

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.num_batches):
            time.sleep(self.wait_s)
            yield torch.ones(4, 8), torch.zeros(4, dtype=torch.long)


class ForeignOptimizer:
    """Steps, and is not torch's."""

    def __init__(self, parameters: Any) -> None:
        self.parameters, self.lr, self.num_steps = list(parameters), 0.1, 0

    def step(self, closure: Any = None) -> Any:
        loss = closure() if closure is not None else None
        self.num_steps += 1
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.sub_(self.lr * parameter.grad)
        return loss


def parts() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def torch_loader(num_batches: int = 5) -> Any:
    data = TensorDataset(torch.ones(num_batches * 4, 8), torch.zeros(num_batches * 4, dtype=torch.long))
    return DataLoader(data, batch_size=4)


def train(model: Any, optimizer: Any, loader: Any, *, call: Any = None, backward: Any = None) -> None:
    criterion = nn.CrossEntropyLoss()
    for x, y in loader:
        with trace_step(model):
            loss = criterion((call or model)(x), y)
            (backward or (lambda loss: loss.backward()))(loss)
            optimizer.step()
