"""Opens a recording around each test's own small training, and reads back what it left in the ring."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Collection, Iterator

import pytest

from traceml.analysis.steps import StepBuilder
from traceml.schema import phases
from traceml.schema.records import Event, StepRecord

torch = pytest.importorskip("torch")

from traceml.recorder.accelerator import Machine  # noqa: E402
from traceml.recorder.session import Session  # noqa: E402  # needs torch
from traceml.wire.codec import Body  # noqa: E402
from traceml.wire.ring import RingReader  # noqa: E402


class Recording:
    """A session, and what its ring says once it is closed."""

    def __init__(
        self,
        folder: Path,
        *,
        max_steps: int | None = None,
        only: Collection[str] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.session = Session(folder, max_steps=max_steps, only=only, machine=machine or Machine())
        self.session.limit(100.0)  # what is given up must not depend on how busy the machine is
        self.builder = StepBuilder()
        self.messages: list[Body] = []
        self.events: list[Event] = []

    def steps(self) -> list[StepRecord]:
        self.session.close("end")
        reader = RingReader(self.session.pen.ring.path)
        for message in reader.messages():
            self.messages.append(message.body)
            self.builder.learn(message.body)
        self.builder.feed(reader.read(0))
        taken = self.builder.take()
        rest = self.builder.finish(reader.read_tail(self.builder.position), end_ns=self.session.pen.clock_ns())
        self.events = [*taken.events, *rest.events]
        return [*taken.steps, *rest.steps]


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path)
    with contextlib.closing(_Closer(made)):
        yield made


VERSION = tuple(int(number) for number in torch.__version__.split("+")[0].split(".")[:2])


def since(*version: int) -> pytest.MarkDecorator:
    """For tests of what came with a version of torch; what an older one does instead, `docs/limits.md` says."""
    return pytest.mark.skipif(version > VERSION, reason=f"came with torch {'.'.join(map(str, version))}")


@pytest.fixture
def nothing_compiled() -> None:
    """As in a fresh process."""
    if VERSION < (2, 1):
        return  # nothing is compiled in these tests; that the compiler is loaded is enough for 2.0 to hide forward
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def manual(tmp_path: Path) -> Iterator[Recording]:
    """A recording with no hooks of its own."""
    made = Recording(tmp_path, only=())
    yield made
    made.session.close("end")


class _Closer:
    def __init__(self, made: Recording) -> None:
        self._made = made

    def close(self) -> None:
        self._made.session.close("end")


def seen(record: StepRecord) -> set[str]:
    """The phases of which an edge fell into the step."""
    rests = {phases.IN_STEP, phases.BETWEEN_STEPS, phases.GC}
    return {name for name, ns in zip(phases.PHASES, record.phase_ns) if ns is not None and name not in rests}
