"""Trains on one real device, under a session of the recorder or without, and reads back what its ring says."""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterator, Sequence

import torch
from torch import nn

from tests.device_times import DeviceTimes, device_times
from traceml.recorder.session import Session
from traceml.recorder.step import trace_step
from traceml.schema import phases
from traceml.wire.codec import Body
from traceml.wire.ring import RingReader

DEVICE = "cuda"


@dataclass
class Found:
    """What a recording left: device times, messages."""

    times: DeviceTimes
    messages: list[Body] = field(default_factory=list)

    def of(self, kind: type[Any]) -> list[Any]:
        """The messages of a kind."""
        return [message for message in self.messages if isinstance(message, kind)]

    def share(self, phase: str, *, skip: int = 5) -> float:
        """A phase's share of the device periods, without the first steps."""
        steps = list(self.times.steps())[skip:]
        assert steps, "no step has device times"
        return sum(step.get(phase, 0.0) for step in steps) / sum(sum(step.values()) for step in steps)

    def mean_ms(self, phase: str, *, skip: int = 5) -> float:
        """A phase's mean on the device, without the first steps."""
        steps = list(self.times.steps())[skip:]
        return sum(step.get(phase, 0.0) for step in steps) / len(steps)

    def offset_ms(self) -> tuple[float, float]:
        """Between what the offset of the two clocks lies, by stamps and polls: lowest, highest."""
        times = self.times
        at_ms = [1e3 * stamp if code < 128 else 0.0 for stamp, code in zip(times.stamps, times.codes)]
        newest, behind = 0.0, []
        for at in at_ms:
            newest = max(newest, at)
            behind.append(newest)
        lowest = max(at_ms[j] - times.ms[j] for j in times.ms)
        ready = [(entry, edge) for entry, edge, is_done in times.polls if is_done and edge in times.ms]
        return lowest, min((behind[entry] - times.ms[edge] for entry, edge in ready), default=float("inf"))


@contextlib.contextmanager
def recorded() -> Iterator[list[Found]]:
    """A session in a folder of its own; what it found is in the list when it is over."""
    with tempfile.TemporaryDirectory(prefix="traceml-gpu-") as folder:
        session = Session(Path(folder))
        found: list[Found] = []
        try:
            yield found
        finally:
            session.close("end")
            reader = RingReader(session.pen.ring.path)
            messages = [message.body for message in reader.messages()]
            found.append(Found(device_times(reader.read(0)), messages))
            reader.close()


def untraced(_: Any) -> ContextManager[Any]:
    """A step without us."""
    return contextlib.nullcontext()


class Sleeping:
    """A loader in the training thread: each batch costs a sleep."""

    def __init__(self, num_batches: int, sleep_s: float, *, width: int, rows: int, pin: bool = False) -> None:
        self._batch = torch.randn(rows, width)
        self._num_batches, self._sleep_s = num_batches, sleep_s
        if pin:
            self._batch = self._batch.pin_memory()

    def __len__(self) -> int:
        return self._num_batches

    def __getitem__(self, index: int) -> Any:
        if index >= self._num_batches:
            raise IndexError(index)
        time.sleep(self._sleep_s)
        return self._batch


class Training:
    """A stack of wide layers: `depth` and `width` make the device's work, `sleep_s` the loader's."""

    def __init__(
        self, *, depth: int = 4, width: int = 1024, rows: int = 1024, sleep_s: float = 0.0, pin: bool = False
    ) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.model = nn.Sequential(*layers).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self._width, self._rows, self._sleep_s, self._pin = width, rows, sleep_s, pin
        self.in_step: Callable[[int], None] = lambda _: None
        self.every: int = 0  # steps between two reads of the loss, which wait for the device; 0: none
        self.copies = True

    def run(self, num_steps: int, step: Callable[[Any], ContextManager[Any]] = trace_step) -> list[float]:
        """Trains; gives the losses, read at the end."""
        losses = []
        here = torch.randn(self._rows, self._width, device=DEVICE)
        data = Sleeping(num_steps, self._sleep_s, width=self._width, rows=self._rows, pin=self._pin)
        loader = torch.utils.data.DataLoader(data, batch_size=None)
        for number, batch in enumerate(loader, start=1):
            with step(self.model):
                x = batch.to(DEVICE, non_blocking=self._pin) if self.copies else here
                loss = self.model(x).square().mean()
                loss.backward()
                self.in_step(number)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
            if self.every and number % self.every == 0:
                loss.item()
        return [loss.item() for loss in losses]


def calibrated(target_ms: float, *, sleep_s: float = 0.0) -> Training:
    """A training whose step keeps this device busy for about `target_ms`, by its number of rows."""
    rows = 256
    for _ in range(3):
        training = Training(rows=rows, sleep_s=0.0)
        training.copies = False
        training.run(3, untraced)
        began = time.perf_counter()
        training.run(10, untraced)
        step_ms = 1e3 * (time.perf_counter() - began) / 10
        rows = max(16, min(1 << 17, round(rows * target_ms / step_ms)))
    made = Training(rows=rows, sleep_s=sleep_s)
    made.copies = False
    return made


def steps_wall_ms(found: Found, *, skip: int = 5) -> float:
    """The host's time over the same steps as `list(times.steps())[skip:]`."""
    times = found.times
    ends = [at for at, code in enumerate(times.codes) if code in (117, 118) and at in times.ms]
    return 1e3 * (times.stamps[ends[-1]] - times.stamps[ends[skip]])


def rest_and_phases(found: Found) -> Sequence[str]:
    """The phases of which device time was seen."""
    return sorted({name for step in found.times.steps() for name in step if name in phases.PHASES})
