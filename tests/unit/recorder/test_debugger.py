"""Holds the recording to leaving out what a debugger took part in, and to leaving no other step out."""

from __future__ import annotations

import bdb
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.unit.recorder.conftest import Recording  # noqa: E402
from tests.unit.recorder.models import Small, work  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.records import HALTED  # noqa: E402

pytestmark = pytest.mark.torch


class Prompt(bdb.Bdb):
    """A debugger whose person says `next` some times, then `continue`."""

    def __init__(self, num_stops: int) -> None:
        super().__init__()
        self.num_left, self.lines = num_stops, list[str]()

    def user_line(self, frame: Any) -> None:
        self.lines.append(frame.f_code.co_name)
        self.num_left -= 1
        if self.num_left:
            self.set_next(frame)
        else:
            self.set_continue()


def train(num_steps: int, *, stop_in: int = 0, num_stops: int = 1) -> Prompt:
    model, prompt = Small(), Prompt(num_stops)
    for number in range(1, num_steps + 1):
        with trace_step(model):
            if number == stop_in:
                prompt.set_trace()
            work(model)
    return prompt


def halted(recording: Recording) -> list[int]:
    return [step.step for step in recording.steps() if step.failed_in == HALTED]


@pytest.fixture
def no_trace() -> Any:
    """Coverage, where it measures us, is not to be lost."""
    before = sys.gettrace()
    yield
    sys.settrace(before)


def test_only_the_step_that_was_stopped_in_a_debugger_is_left_out(recording: Recording, no_trace: None) -> None:
    prompt = train(60, stop_in=30)

    assert prompt.lines == ["train"]  # the frame that called it
    assert halted(recording) == [30]
    assert [(event.kind, event.step, event.text) for event in recording.events] == [("halted", 30, "traced")]


def test_steps_that_somebody_walks_through_line_by_line_are_left_out(recording: Recording, no_trace: None) -> None:
    train(60, stop_in=30, num_stops=5)

    assert halted(recording)[:2] == [30, 31]


def test_a_post_mortem_is_left_out(recording: Recording) -> None:
    model = Small()
    for number in range(1, 41):
        with trace_step(model):
            work(model)
            if number == 33:
                bdb.Bdb().reset()  # as pdb.post_mortem begins

    assert halted(recording) == [33]


def test_a_tracer_of_another_make_is_seen_at_the_next_look(recording: Recording, no_trace: None) -> None:
    sys.settrace(lambda *_: None)
    train(40)
    sys.settrace(None)
    train(3)

    assert halted(recording) == list(range(1, 42))  # seen to be gone at the end of a step


def test_without_a_debugger_nothing_is_left_out(recording: Recording) -> None:
    train(60)

    assert halted(recording) == []


def test_what_is_wrapped_comes_off_with_the_recording(recording: Recording) -> None:
    assert hasattr(bdb.Bdb.reset, "__wrapped__")

    recording.session.close("end")

    assert not hasattr(bdb.Bdb.reset, "__wrapped__")
