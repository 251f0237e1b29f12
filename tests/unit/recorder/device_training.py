"""Trains on the stand-in for an accelerator: real modules and hooks, with costs in ms on the host and on the device."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, ContextManager

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from tests.accelerator import Accelerator  # noqa: E402
from tests.device_times import DeviceTimes, device_times  # noqa: E402
from tests.unit.recorder.conftest import Recording  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.wire.ring import RingReader  # noqa: E402


def nothing() -> None:
    """No script of the test's own."""


@dataclass(frozen=True)
class Costs:
    """Of one step; `input_ms` on the host alone, the others on the device, each after `launch_ms` of the host."""

    input_ms: float = 1.0
    forward_ms: float = 2.0
    backward_ms: float = 3.0
    optimizer_ms: float = 1.0
    launch_ms: float = 0.1


class Training:
    """A linear model. `after_backward` and the like are the test's script, at that place of each step."""

    def __init__(self, accelerator: Accelerator, costs: Costs = Costs(), *, num_steps: int = 20) -> None:
        torch.manual_seed(0)
        self.accelerator, self.costs, self.num_steps = accelerator, costs, num_steps
        self.after_fetch: Callable[[], None] = nothing
        self.after_forward: Callable[[], None] = nothing
        self.after_backward: Callable[[], None] = nothing
        self.after_step: Callable[[], None] = nothing
        self.copies = 0
        self.model = _Model(self)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.optimizer.register_step_pre_hook(lambda *_: self.work(self.costs.optimizer_ms))  # inside of step()

    def work(self, device_ms: float) -> None:
        self.accelerator.host(self.costs.launch_ms)
        self.accelerator.launch(device_ms)

    def run(self, step: Callable[[Any], ContextManager[Any]] = trace_step) -> list[float]:
        losses = []
        for x in DataLoader(_Batches(self), batch_size=None):
            self.after_fetch()
            with step(self.model):
                for _ in range(self.copies):
                    x.to("meta")
                out = self.model(x)
                self.after_forward()
                out.register_hook(lambda _: self.work(self.costs.backward_ms))
                loss = out.sum()
                loss.backward()
                self.after_backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            losses.append(loss.item())
            self.after_step()
        return losses


class _Batches(Dataset[Any]):  # type: ignore[misc]  # torch is Any where it is not installed
    def __init__(self, training: Training) -> None:
        self._training = training
        self._made = torch.randn(16, 4)

    def __len__(self) -> int:
        return self._training.num_steps

    def __getitem__(self, index: int) -> Any:
        self._training.accelerator.host(self._training.costs.input_ms)
        return self._made[index % 16 : index % 16 + 1]


class _Model(nn.Module):  # type: ignore[misc]  # likewise
    def __init__(self, training: Training) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self._training = [training]

    def forward(self, x: Any) -> Any:
        self._training[0].work(self._training[0].costs.forward_ms)
        return self.linear(x)


def untraced(_: Any) -> ContextManager[Any]:
    """No `trace_step`: steps are inferred, or nothing is recorded."""
    return contextlib.nullcontext()


def bare_losses(num_steps: int = 20) -> list[float]:
    """What a training gives without us."""
    return Training(Accelerator(), num_steps=num_steps).run(untraced)


def told(recording: Recording) -> DeviceTimes:
    """What the ring says of the device once the session is closed."""
    recording.session.close("end")
    reader = RingReader(recording.session.pen.ring.path)
    recording.messages += [message.body for message in reader.messages()]
    return device_times(reader.read(0))


def capture_step(training: Training, device: Accelerator, *, step: int) -> None:
    """One step's forward and backward are captured into a graph; each step is waited for."""
    graph = device.Graph()
    num = 0

    def begin() -> None:
        nonlocal num
        num += 1
        if num == step:
            graph.capture_begin()

    def end() -> None:
        if num == step:
            graph.capture_end()

    training.after_fetch, training.after_backward, training.after_step = begin, end, device.wait
