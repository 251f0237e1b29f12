"""Makes the models of the recorder's tests: small ones, and those whose classes are a trap."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.unit.recorder.conftest import Recording  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.records import StepRecord  # noqa: E402

COMPUTE = {"forward", "backward"}


class Small(nn.Module):  # type: ignore[misc]  # torch is Any where it is not installed
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        """Scales, too."""
        return torch.tanh(self.linear(x)) * scale


class Factored(Small):
    factor = 1.0

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return super().forward(x, scale) * self.factor


class Keeping(Factored):
    """A class whose own state keeps whatever is on the instance."""

    def __getstate__(self) -> Any:
        return self.__dict__.copy()


class CopyingItself(Factored):
    """A class that copies its names as they are, and then its parameters."""

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._modules = copy.deepcopy(self._modules, memo)
        return made


class Recursive(Small):
    def forward(self, x: Any, scale: float = 2.0) -> Any:
        return self.linear(x) if scale == 0 else self(x, scale - 1)


class Agent(nn.Module):  # type: ignore[misc]
    """Its own methods are called, its forward never: it has none."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def values(self, x: Any) -> Any:
        return self.actor(x).sum() + self.critic(x).sum()


def work(call: Any) -> None:
    call(torch.ones(2, 4)).sum().backward()


def steps_of(recording: Recording, *models: Any, call: Any, num_steps: int = 3) -> list[StepRecord]:
    for _ in range(num_steps):
        with trace_step(*models):
            work(call)
    return recording.steps()
