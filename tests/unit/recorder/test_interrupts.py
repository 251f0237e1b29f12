"""Holds the guards to letting through what a signal handler raised in our lines, and to nothing else."""

from __future__ import annotations

import functools
import gc
import signal
import time
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

from tests.accelerator import Accelerator  # noqa: E402
from tests.unit.recorder.conftest import Recording, seen  # noqa: E402
from tests.unit.recorder.models import COMPUTE, Small, work  # noqa: E402
from traceml.recorder.accelerator import Machine  # noqa: E402
from traceml.recorder.interrupts import is_users  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.records import Fault  # noqa: E402

pytestmark = pytest.mark.torch


class Timeout(Exception):  # noqa: N818  # as users call it
    pass


def plain(_number: int, _frame: Any) -> None:
    raise Timeout


def unnamed(*_: Any) -> None:
    raise Timeout


class Handler:
    def __call__(self, _number: int, _frame: Any) -> None:
        raise Timeout

    def method(self, _number: int, _frame: Any) -> None:
        raise Timeout


@pytest.mark.parametrize(
    "handler",
    [plain, unnamed, Handler(), Handler().method, functools.partial(plain)],
)
def test_what_a_signal_handler_raised_is_the_users(handler: Callable[..., None]) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        signal.raise_signal(signal.SIGUSR1)
    except Timeout as error:
        found = is_users(error)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert found


def test_what_a_property_of_the_users_raises_while_we_look_is_not_let_through() -> None:
    class Loader:
        @property
        def dataset(self) -> Any:
            raise Timeout

    try:
        _ = Loader().dataset
    except Timeout as error:
        found = is_users(error)

    assert not found


class Clock:
    """The recorder's clock; a signal comes with its reading number `at`, counted from `arm` on."""

    def __init__(self) -> None:
        self._left = -1

    def arm(self, at: int) -> None:
        self._left = at

    def perf_counter(self) -> float:
        self._left -= 1
        now = time.perf_counter()
        if not self._left:
            signal.raise_signal(signal.SIGUSR1)
        return now


@pytest.mark.parametrize("accelerator", [None, Accelerator()], ids=["host", "device"])
@pytest.mark.parametrize("at", range(1, 14))
def test_an_exception_at_any_of_our_stamps_is_raised_and_what_follows_is_whole(
    tmp_path: Any, accelerator: Accelerator | None, at: int
) -> None:
    clock, before = Clock(), signal.signal(signal.SIGUSR1, plain)
    recording = Recording(tmp_path, machine=Machine(clock.perf_counter, accelerator))
    model, raised_in = Small(), list[int]()
    gc.disable()  # a collection reads this clock, too, and what it raises comes back a moment later
    try:
        for epoch in range(3):
            loader = torch.utils.data.DataLoader(torch.ones(6, 4), batch_size=2)
            clock.arm(at if epoch == 1 else 0)
            try:
                for batch in loader:
                    with trace_step(model):
                        model(batch).sum().backward()
            except Timeout:
                raised_in.append(epoch)
    finally:
        gc.enable()
        signal.signal(signal.SIGUSR1, before)
        clock.arm(0)

    steps = recording.steps()

    assert raised_in == [1]
    assert [seen(step) - {"eval"} for step in steps[-3:]] == [{*COMPUTE, "input"}] * 3  # a batch that was lost is eval
    assert [step.failed_in for step in steps[-3:]] == [None] * 3
    assert not [message for message in recording.messages if isinstance(message, Fault)]


def test_a_step_whose_exit_was_interrupted_before_its_first_line_does_not_swallow_the_next_ones(
    recording: Recording,
) -> None:
    model = Small()
    trace_step(model).__enter__()  # as if a signal had come before its __exit__ could do anything
    for _ in range(3):
        with trace_step(model):
            with trace_step(model):
                work(model)
            work(model)

    steps = recording.steps()

    assert [(step.failed_in, step.num_micro_batches) for step in steps] == [("in_step", 0), *[(None, 2)] * 3]
