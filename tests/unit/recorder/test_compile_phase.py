"""Holds the compile phase to what torch.compile really does: when, how often again, why, and when it gives up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.unit.recorder.conftest import Recording, seen, since  # noqa: E402
from traceml.analysis.warmup import Warmup  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.phases import PHASE_INDEX  # noqa: E402
from traceml.schema.records import Compilation, Fault  # noqa: E402

pytestmark = [pytest.mark.torch, since(2, 4)]
SOURCE = Path(__file__).parents[3] / "src"
COMPILE = PHASE_INDEX["compile"]


NAMED = since(2, 5)  # 2.4 does not say which compilation it is; 2.5 to 2.12 were not looked at


@pytest.fixture(autouse=True)
def dynamo() -> Iterator[Any]:
    """As in a fresh process, and again for the next test."""
    import torch._dynamo as dynamo

    dynamo.reset()
    dynamo.utils.counters.clear()
    dynamo.utils.clear_compilation_metrics()
    yield dynamo
    dynamo.reset()
    dynamo.utils.counters.clear()


def train(sizes: list[int], *, call: Any, model: Any) -> None:
    for size in sizes:
        with trace_step(model):
            call(torch.ones(size, 4)).sum().backward()


def parts(**options: Any) -> dict[str, Any]:
    model = nn.Linear(4, 4)
    return {"model": model, "call": torch.compile(model, backend="eager", **options)}


def compilations(recording: Recording) -> list[Compilation]:
    return [message for message in recording.messages if isinstance(message, Compilation)]


def test_a_steps_compilation_is_its_own_phase_and_makes_the_step_warm_up(recording: Recording) -> None:
    train([2, 2, 2], **parts())

    steps = recording.steps()

    assert ["compile" in seen(step) for step in steps] == [True, False, False]
    assert [Warmup(0).holds(step) for step in steps] == [True, False, False]
    assert (steps[0].phase_ns[COMPILE] or 0) > (steps[0].phase_ns[PHASE_INDEX["forward"]] or 0)


@NAMED
def test_a_recompilation_is_counted_and_told_with_its_reason(recording: Recording) -> None:
    train([2, 2, 3, 3, 4], **parts(dynamic=False))

    steps = recording.steps()
    events = [event for event in recording.events if event.kind == "recompilation"]

    assert ["compile" in seen(step) for step in steps] == [True, False, True, False, True]
    assert [(event.step, "expected" in event.text and "actual 3" in event.text) for event in events] == [
        (3, True),
        (5, False),
    ]
    assert (recording.builder.state.num_compilations, recording.builder.state.num_recompilations) == (3, 2)


@NAMED
def test_what_reaches_the_limit_of_recompilations_is_said_to_be_eager_now(recording: Recording, dynamo: Any) -> None:
    with dynamo.config.patch(recompile_limit=2):
        train([2, 3, 4, 5, 6, 7], **parts(dynamic=False))

    recording.steps()

    assert [message.is_eager for message in compilations(recording)].count(True) == 1
    assert [event.kind for event in recording.events].count("now eager") == 1


def test_a_reset_of_dynamo_does_not_end_our_watching(recording: Recording, dynamo: Any) -> None:
    whole = parts()
    train([2, 2], **whole)
    dynamo.reset()
    train([2, 2], **whole)

    assert ["compile" in seen(step) for step in recording.steps()] == [True, False, True, False]


def test_our_callbacks_come_off_with_the_session(tmp_path: Path, dynamo: Any) -> None:
    handler = dynamo.callback_handler
    for _ in range(3):
        recording = Recording(tmp_path)
        assert (len(handler.start_callbacks), len(handler.end_callbacks)) == (1, 1)
        recording.session.close("end")

    assert (handler.start_callbacks, handler.end_callbacks, "clear" in vars(handler)) == ([], [], False)


def test_a_fault_in_our_callback_is_not_the_trainings(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(_: int) -> float:
        raise RuntimeError("no room")

    whole = parts(dynamic=False)
    compiler = next(ours.__self__ for ours in torch._dynamo.callback_handler.start_callbacks)
    compiler._pen = type("Broken", (), {"__getattr__": lambda _, name: getattr(recording.session.pen, name)})()
    compiler._pen.stamp = failing
    train([2, 3, 4, 5], **whole)
    recording.steps()

    assert [m.num_times for m in recording.messages if isinstance(m, Fault)] == [1, 2, 3]
    assert capsys.readouterr().err.count("a fault of ours") == 1


def test_compiling_in_another_thread_is_not_this_ones_phase(recording: Recording) -> None:
    import threading

    whole = parts()
    thread = threading.Thread(target=lambda: whole["call"](torch.ones(2, 4)))
    with trace_step(whole["model"]):
        thread.start()
        thread.join()

    assert "compile" not in seen(recording.steps()[0])


def test_a_first_compilation_inside_the_first_step_is_seen_although_nothing_had_loaded_dynamo(tmp_path: Path) -> None:
    script = f"""
import json, sys, torch
from pathlib import Path
from traceml.recorder.session import Session
from traceml.recorder.step import trace_step
session = Session(Path({str(tmp_path)!r}))
model, called = torch.nn.Linear(4, 4), None
was_loaded = "torch._dynamo" in sys.modules
for _ in range(2):
    with trace_step(model):
        called = torch.compile(model, backend="eager", fullgraph=True) if called is None else called
        called(torch.ones(2, 4)).sum().backward()
codes = bytes(session.pen.codes[:20000])
counters = torch._dynamo.utils.counters
session.close("end")
print(json.dumps([was_loaded, codes.count(3), codes.count(9), counters["stats"]["unique_graphs"],
    sum(counters["graph_break"].values()), [type(f).__name__ for f in sys.meta_path]]))
"""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE, check=True, timeout=120)

    was_loaded, num_forwards, num_compilations, num_graphs, num_breaks, finders = json.loads(done.stdout)
    assert not was_loaded
    assert (num_forwards, num_compilations, num_graphs, num_breaks) == (2, 1, 1, 0)
    assert "Arrival" not in finders
