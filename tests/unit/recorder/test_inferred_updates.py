"""Holds inferred steps to what they end with: all updates of the last one, optimizers that are not torch's."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import traceml  # noqa: E402
from tests.unit.recorder.conftest import Recording, seen, since  # noqa: E402
from tests.unit.recorder.foreign import ForeignOptimizer  # noqa: E402
from tests.unit.recorder.test_zero_code import ALL, loader_of, model_of, sgd  # noqa: E402
from traceml.recorder.hooks.stand import SLOT  # noqa: E402
from traceml.schema.records import Fault  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("with_loader", [True, False])
def test_the_last_step_that_was_asked_for_has_all_its_updates(tmp_path: Path, with_loader: bool) -> None:
    recording = Recording(tmp_path, max_steps=3)
    generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
    first, second = sgd(critic), sgd(generator)
    for _ in loader_of(8) if with_loader else range(8):
        critic(generator(torch.randn(4, 4)).detach()).sum().backward()
        first.step()
        critic(generator(torch.randn(4, 4))).sum().backward()
        second.step()

    assert not recording.session.is_open
    assert [step.num_optimizer_steps for step in recording.steps()] == [2] * 3


class Unhashable(ForeignOptimizer):
    __slots__ = ("lr", "num_steps", "parameters")  # and no weak reference
    __hash__ = None  # type: ignore[assignment]  # as a dataclass with eq has it

    def __eq__(self, other: object) -> bool:
        return self is other


@pytest.mark.parametrize("kind", [ForeignOptimizer, Unhashable])
def test_the_steps_of_an_optimizer_that_is_not_torchs_are_counted_once_it_is_wrapped(
    recording: Recording, kind: Any
) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()
    optimizer = traceml.wrap_optimizer(kind(model.parameters()))
    for number, (x, y) in enumerate(loader_of(20)):
        criterion(model(x), y).backward()
        if number % 2:
            optimizer.step()
            model.zero_grad()

    steps = recording.steps()

    assert [(seen(step), step.num_micro_batches, step.num_optimizer_steps) for step in steps] == [(ALL, 2, 1)] * 10
    assert recording.builder.state.unsure == ""
    assert not [message for message in recording.messages if isinstance(message, Fault)]


def test_a_wrapped_optimizer_around_one_of_torchs_updates_once_a_step(recording: Recording) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()

    class Outer:
        def __init__(self) -> None:
            self.inner = sgd(model)

        def step(self) -> None:
            self.inner.step()

    optimizer = traceml.wrap_optimizer(Outer())
    for x, y in loader_of(10):
        criterion(model(x), y).backward()
        optimizer.step()

    steps = recording.steps()

    assert [(seen(step), step.num_optimizer_steps) for step in steps] == [(ALL, 1)] * 10
    assert recording.builder.state.unsure == ""


@since(2, 1)
def test_a_model_compiled_before_the_recording_is_seen(tmp_path: Path, nothing_compiled: None) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()
    model.compile(backend="eager")
    slot = model.__dict__[SLOT]
    recording, optimizer = Recording(tmp_path), sgd(model)
    for x, y in loader_of(6):
        criterion(model(x), y).backward()
        optimizer.step()

    steps = recording.steps()

    assert [seen(step) - {"compile"} for step in steps] == [ALL] * 6
    assert model.__dict__[SLOT] is slot


class Base(torch.optim.SGD):  # type: ignore[misc, name-defined]
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Deeper(Base):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


@pytest.mark.parametrize("kind", [torch.optim.SGD, Base, Deeper])
@pytest.mark.parametrize("is_traced", [False, True])
def test_an_optimizer_whose_step_calls_its_base_classes_updates_once_a_step(
    recording: Recording, kind: Any, *, is_traced: bool
) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()
    for base in (torch.optim.SGD, Base):
        base(nn.Linear(2, 2).parameters(), lr=0.1)  # from now on the hooks hold the step of that class, too
    optimizer = kind(model.parameters(), lr=0.1)
    for x, y in loader_of(12):
        with traceml.trace_step(model) if is_traced else contextlib.nullcontext():
            criterion(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    steps = recording.steps()

    assert [(seen(step), step.num_micro_batches, step.num_optimizer_steps) for step in steps] == [(ALL, 1, 1)] * 12
    assert [sum(ns or 0 for ns in step.phase_ns) for step in steps] == [step.period_ns for step in steps]


def test_without_a_loader_such_an_optimizer_ends_its_step_once(recording: Recording) -> None:
    model = nn.Linear(4, 1)
    for base in (torch.optim.SGD, Base):
        base(nn.Linear(2, 2).parameters(), lr=0.1)
    optimizer = Deeper(model.parameters(), lr=0.1)
    for _ in range(12):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    assert [step.num_optimizer_steps for step in recording.steps()] == [1] * 12
