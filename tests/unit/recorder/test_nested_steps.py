"""Holds a step to being one step: nested, entered again, left by an exception, in a thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

torch = pytest.importorskip("torch")


from tests.unit.recorder.conftest import Recording, seen  # noqa: E402
from tests.unit.recorder.models import COMPUTE, Small, work  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.records import Unrecorded  # noqa: E402

pytestmark = pytest.mark.torch


def test_an_exception_in_a_step_leaves_nothing_open_for_the_next(recording: Recording) -> None:
    model = Small()
    for number in range(4):
        with pytest.raises(ZeroDivisionError) if number == 1 else trace_step(model), trace_step(model):
            work(model)
            if number == 1:
                model(torch.ones(1, 4) * (1 / 0))

    steps = recording.steps()

    assert [step.failed_in for step in steps] == [None, "in_step", None, None]
    assert [seen(step) for step in steps] == [COMPUTE] * 4


def test_one_trace_step_entered_twice_ends_with_the_outer_one(recording: Recording) -> None:
    model = Small()
    for _ in range(3):
        step = trace_step(model)
        with step:
            with step, step:
                work(model)
            work(model)

    steps = recording.steps()

    assert [step.num_micro_batches for step in steps] == [2, 2, 2]


def test_a_nested_step_of_another_model_leaks_nothing_into_the_next(recording: Recording) -> None:
    outer, inner = Small(), Small()
    for _ in range(3):
        with trace_step(outer):
            work(outer)
            with pytest.raises(KeyError), trace_step(inner):
                _ = dict[str, int]()[str(inner(torch.ones(2, 4)).sum().backward())]

    steps = recording.steps()

    assert [(step.failed_in, step.num_micro_batches) for step in steps] == [(None, 2)] * 3


def test_a_model_traced_in_a_thread_of_its_own_is_seen_there(recording: Recording) -> None:
    model = Small()

    def train() -> None:
        for _ in range(3):
            with trace_step(model):
                work(model)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()

    assert [seen(step) for step in recording.steps()] == [COMPUTE] * 3


def test_steps_of_another_thread_while_one_is_open_are_counted(recording: Recording) -> None:
    model = Small()

    def train() -> None:
        for _ in range(4):
            with trace_step(model):
                work(model)

    with trace_step(model):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()

    assert len(recording.steps()) == 1
    assert recording.builder.state.unrecorded == Unrecorded(in_threads=4)


def test_steps_of_two_coroutines_that_overlap_are_counted(recording: Recording) -> None:
    model = Small()

    async def train() -> None:
        with trace_step(model):
            await asyncio.sleep(0)
            work(model)

    async def both() -> None:
        await asyncio.gather(train(), train())

    for _ in range(3):
        asyncio.run(both())

    assert len(recording.steps()) == 3
    assert recording.builder.state.unrecorded == Unrecorded(overlapping=3)


def test_nested_steps_are_not_said_to_be_missing(recording: Recording) -> None:
    model = Small()
    for _ in range(3):
        with trace_step(model), trace_step(model):
            work(model)

    recording.steps()

    assert recording.builder.state.unrecorded is None
