"""Holds trace_step, region and count inside compiled code to nothing: no error, graph, frame or break of theirs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.unit.recorder.conftest import Recording, since  # noqa: E402
from traceml.recorder import compiling, session, step  # noqa: E402
from traceml.recorder.hooks.compiler import legible  # noqa: E402
from traceml.recorder.step import count, region, trace_step  # noqa: E402

pytestmark = [pytest.mark.torch, since(2, 4)]


def nothing(*_: Any, **__: Any) -> Any:
    return contextlib.nullcontext()


OURS, BARE = (trace_step, region, count), (nothing, nothing, nothing)


@pytest.fixture(autouse=True)
def dynamo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """As in a fresh process, and again for the next test."""
    import torch._dynamo as dynamo

    dynamo.reset()
    dynamo.utils.counters.clear()
    monkeypatch.setattr(compiling, "_has_been", False)
    yield dynamo
    if session._open is not None:  # hooks that stay would see what other tests train
        session._open.close("end")
    step.begin_session(None)
    dynamo.reset()
    dynamo.utils.counters.clear()


def make(marks: tuple[Any, ...], *, fullgraph: bool, breaks: bool = False) -> Callable[[], float]:
    step_of, region_of, count_of = marks
    model = nn.Linear(4, 4)

    def work(x: Any) -> Any:
        with step_of(model, step=3):
            with region_of("part"):
                y = model(x)
            count_of(samples=2)
            if breaks:
                torch._dynamo.graph_break()
            return y.sum() + 1

    compiled = torch.compile(work, backend="eager", fullgraph=fullgraph)
    return lambda: float(compiled(torch.ones(2, 4)).detach())


def counted(dynamo: Any) -> dict[str, dict[str, int]]:
    return {name: dict(dynamo.utils.counters[name]) for name in ("frames", "stats", "graph_break", "unimplemented")}


def bare(dynamo: Any, *, fullgraph: bool) -> dict[str, dict[str, int]]:
    run = make(BARE, fullgraph=fullgraph)
    for _ in range(3):
        run()
    found = counted(dynamo)
    dynamo.reset()
    dynamo.utils.counters.clear()
    return found


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("only", [None, ()])
def test_in_a_session_marks_in_compiled_code_are_nothing(
    tmp_path: Path, dynamo: Any, *, fullgraph: bool, only: Any
) -> None:
    expected = bare(dynamo, fullgraph=fullgraph)
    recording = Recording(tmp_path, only=only)
    assert compiling.may_be is (only == ())  # without the compiler's hook nobody would hear of a compilation

    run = make(OURS, fullgraph=fullgraph)
    for _ in range(3):
        run()

    assert counted(dynamo) == expected
    assert expected["stats"]["unique_graphs"] == 1
    assert recording.session.pen.num_steps == 0
    assert recording.session.pen.regions == {}


@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_was_compiled_before_a_session_is_not_compiled_again_in_it_nor_behind(
    tmp_path: Path, dynamo: Any, *, fullgraph: bool
) -> None:
    expected = bare(dynamo, fullgraph=fullgraph)
    run = make(OURS, fullgraph=fullgraph)
    run()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        recording = Recording(tmp_path / name)
        run()
        with trace_step():
            run()
        assert recording.session.pen.num_steps == 1
        recording.session.close("end")
        run()

    assert counted(dynamo) == expected


def test_a_session_behind_one_in_which_nobody_compiled_asks_nothing_either(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        recording = Recording(tmp_path / name)
        assert not compiling.may_be
        recording.session.close("end")
        assert compiling.may_be


def test_steps_and_regions_around_compiled_code_are_recorded_as_before(recording: Recording) -> None:
    assert trace_step.__enter__.__name__ == "enter_first"  # nothing is asked before somebody compiles
    assert region.__enter__ is step._enter_region
    run = make(OURS, fullgraph=True)
    for _ in range(3):
        with trace_step(step=7), region("around"):
            run()
            count(samples=5)

    assert list(recording.session.pen.regions) == ["around"]
    steps = recording.steps()

    assert trace_step.__enter__ is step._ask_enter
    assert region.__enter__ is step._ask_enter_region
    assert [(found.num_samples, found.user_step) for found in steps] == [(5, 7)] * 3


@since(2, 7)
def test_where_a_break_makes_the_function_run_uncompiled_its_steps_are_recorded_and_ours_not_compiled(
    recording: Recording, dynamo: Any
) -> None:
    run = make(OURS, fullgraph=False, breaks=True)
    for _ in range(3):
        run()

    assert recording.session.pen.num_steps == 3
    assert counted(dynamo)["frames"].get("total") == 1
    assert counted(dynamo)["stats"] == {}


BACKENDS = """0/0: BACKEND_MATCH failure: torch.compile detected different backend callables.
Cached backend: _TorchCompileWrapper(compiler='a', dynamic=None) (id=0x7f6ed5b76350).
New backend: _TorchCompileWrapper(compiler='b', dynamic=None) (id=0x7f6ed5b7a7d0). If this is unexpected, reuse it.
More details: https://github.com/pytorch/pytorch/issues/168373"""
TOLD = "torch.compile detected different backend callables. If this is unexpected, reuse it."


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (BACKENDS, f"0/0: BACKEND_MATCH failure: {TOLD}"),
        (
            "1/0: ___check_type_id(c, 94524273342224), type=<class 'm.C'>\nUser stack trace:\n  File \"a.py\", line 1",
            "1/0: ___check_type_id(c), type=<class 'm.C'>",
        ),
        ("L['f'] is <function g at 0x7fa82042a950>", "L['f'] is <function g>"),
        ("tensor 'x' size mismatch at index 0. expected 2, actual 3", None),
        ("L['n'] == 1048576", None),
    ],
)
def test_a_reason_holds_no_addresses_ids_and_reprs(reason: str, told: str | None) -> None:
    assert legible(reason) == (told or reason)
