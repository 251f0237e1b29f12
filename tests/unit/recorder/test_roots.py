"""Holds the search for the trained models to leaving nothing behind: copies, pickles, freed models, compiled graphs."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.unit.recorder.conftest import Recording, seen, since  # noqa: E402
from tests.unit.recorder.test_zero_code import ALL, loader_of, model_of, sgd, train  # noqa: E402
from traceml.recorder.hooks.forward import SLOT  # noqa: E402

pytestmark = pytest.mark.torch


@since(2, 1)
def test_copies_and_pickles_of_a_root_hold_nothing_of_ours(recording: Recording) -> None:
    _, model = train(5)
    x = torch.randn(2, 8)
    ema = copy.deepcopy(model)
    with torch.no_grad():
        ema[0].weight += 1

    assert SLOT in model.__dict__
    assert SLOT not in ema.__dict__
    assert not torch.equal(ema(x), model(x))
    assert b"traceml" not in pickle.dumps(model)


def test_a_root_is_freed_as_soon_as_its_owner_lets_go(recording: Recording) -> None:
    gone = weakref.ref(train(5)[1])
    gc.disable()
    try:
        assert gone() is None
    finally:
        gc.enable()


class Net(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A class of the user's own: the compiler takes its call another way than that of torch.nn's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model_of()

    def forward(self, x: Any) -> Any:
        return self.inner(x).relu()


def wrapped(model: Any) -> Any:
    return torch.compile(model, backend="eager", fullgraph=True)


def compiled_in_place(model: Any) -> Any:
    model.compile(backend="eager", fullgraph=isinstance(model, Net))  # torch refuses it for its own classes
    return model


def compiled_inside(model: Any) -> Any:
    model = nn.Sequential(nn.Linear(8, 8), model)
    model[1] = torch.compile(model[1], backend="eager", fullgraph=True)
    return model


@since(2, 1)
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own
@pytest.mark.parametrize("compiled", [wrapped, compiled_in_place, compiled_inside])
@pytest.mark.parametrize("made", [model_of, Net])
def test_a_compiled_model_has_the_graphs_it_has_without_us(tmp_path: Path, made: Any, compiled: Any) -> None:
    from torch._dynamo.utils import counters

    def graphs() -> tuple[Any, ...]:
        torch._dynamo.reset()
        counters.clear()
        model = compiled(made())
        optimizer = sgd(model)
        for x, _ in loader_of(8):
            model(x).sum().backward()
            optimizer.step()
        return counters["stats"]["unique_graphs"], dict(counters["frames"]), dict(counters["graph_break"])

    bare = graphs()
    recording = Recording(tmp_path)
    watched = graphs()

    steps = recording.steps()

    assert watched == bare
    assert [seen(step) - {"compile"} for step in steps] == [ALL] * 8
    assert ["compile" in seen(step) for step in steps[1:]] == [
        False
    ] * 7  # the script's own compilation is in the first
    assert ["compile" in seen(step) for step in steps[1:]] == [False] * 7
    assert recording.builder.state.faults == ()
