"""Holds the forward hook to what it leaves on a model, in its copies and its files: nothing."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import io
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.unit.recorder.conftest import VERSION, Recording, seen, since  # noqa: E402
from tests.unit.recorder.models import COMPUTE, CopyingItself, Keeping, Small, steps_of, work  # noqa: E402
from traceml.recorder.hooks import copies  # noqa: E402
from traceml.recorder.hooks.stand import METHOD, SLOT, Stand  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.records import Watching  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("nothing_compiled")]


def scripting_warns() -> Any:
    """Torch calls TorchScript deprecated from 2.10 or so on, in one class of warning, then in another."""
    with_reason = pytest.warns((DeprecationWarning, FutureWarning), match="jit")
    return with_reason if VERSION >= (2, 10) else contextlib.nullcontext()


def test_a_taken_forward_has_the_signature_and_the_name_of_the_real_one(recording: Recording) -> None:
    model = Small()
    for _ in range(2):
        with trace_step(model):
            work(model.forward)

    assert isinstance(model.__dict__[METHOD], Stand)
    assert list(inspect.signature(model.forward).parameters) == ["x", "scale"]
    assert (model.forward.__name__, model.forward.__doc__) == ("forward", "Scales, too.")


def test_copies_and_files_of_a_model_whose_forward_is_taken_are_clean_and_their_own(recording: Recording) -> None:
    model = Small()
    for _ in range(2):
        with trace_step(model):
            work(model.forward)
    with trace_step(model):
        ema, shallow, pickled = copy.deepcopy(model), copy.copy(model), pickle.dumps(model)
        file = io.BytesIO()
        torch.save(model, file)
    with torch.no_grad():
        ema.linear.weight.zero_()
        ema.linear.bias.zero_()

    assert not {METHOD, SLOT} & (set(ema.__dict__) | set(shallow.__dict__) | set(pickle.loads(pickled).__dict__))
    assert b"traceml" not in pickled + file.getvalue()
    assert ema(torch.ones(1, 4)).sum() == 0
    assert model(torch.ones(1, 4)).sum() != 0


@since(2, 1)
def test_scripting_a_traced_model_inside_a_step_works(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    for taken in (False, True):
        for _ in range(2):
            with trace_step(model):
                work(model.forward if taken else model)
                with scripting_warns():
                    scripted = torch.jit.script(model)

        assert (METHOD in model.__dict__) == taken
        assert torch.equal(scripted(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_a_scripted_model_is_passed_over_and_that_is_said_once(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripting_warns():
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))

    steps = steps_of(recording, scripted, call=scripted)

    assert [seen(step) for step in steps] == [{"backward"}] * 3
    assert capsys.readouterr().err.count("TorchScript") == 1
    assert "forward" in [m for m in recording.messages if isinstance(m, Watching)][-1].unseen


@since(2, 1)
@pytest.mark.parametrize("kind", [Keeping, CopyingItself])
def test_a_class_that_copies_its_names_as_they_are_computes_with_the_copys_weights(
    recording: Recording, kind: Any
) -> None:
    model, x = kind(), torch.ones(1, 4)
    for _ in range(2):
        with trace_step(model):
            work(model)
            ema = copy.deepcopy(model)
            shallow = copy.copy(model)
    with torch.no_grad():
        ema.linear.weight.zero_()
        ema.linear.bias.zero_()
    shallow.factor = 0.0

    assert ema(x).sum() == 0
    assert shallow(x).sum() == 0
    assert model(x).sum() != 0
    assert b"traceml" not in pickle.dumps(model)
    assert [seen(step) for step in recording.steps()] == [COMPUTE] * 2


@since(2, 1)
def test_replicas_of_data_parallel_run_themselves(recording: Recording) -> None:
    model = Small()
    with trace_step(model):
        replica = model._replicate_for_data_parallel()
        work(model)

    assert SLOT not in replica.__dict__
    assert SLOT in model.__dict__


def test_sharing_memory_of_a_traced_model_works(recording: Recording) -> None:
    model = Small()
    with trace_step(model):
        work(model.share_memory())

    assert all(parameter.is_shared() for parameter in model.parameters())


def test_a_freed_model_is_freed_also_when_its_forward_was_taken(recording: Recording) -> None:
    model = Small()
    for _ in range(3):
        with trace_step(model):
            work(model.forward)
    gone = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


@since(2, 1)
def test_without_the_slot_the_forward_is_taken_from_the_first_step_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "has_slot", lambda _: False)
    recording, model, states = Recording(tmp_path), Small(), nn.Module.__getstate__
    with trace_step(model):
        work(model)
        ema, pickled = copy.deepcopy(model), pickle.dumps(model)
    assert METHOD in model.__dict__
    assert SLOT not in model.__dict__
    with trace_step(model):
        work(model.forward)

    assert METHOD not in ema.__dict__
    assert b"traceml" not in pickled
    assert [seen(step) & COMPUTE for step in recording.steps()] == [COMPUTE] * 2
    assert METHOD not in model.__dict__
    assert nn.Module.__getstate__ is states


@since(2, 1)
def test_without_a_state_method_of_torchs_own_ours_is_put_there_and_taken_away(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(nn.Module, "__getstate__")
    copies.watch_states(torch)
    model = Small()
    model.__dict__[METHOD] = recording.session.pen.method_class(model, None)
    state: Any = model.__getstate__()
    recording.session.close("end")

    assert METHOD not in state
    assert "__getstate__" not in nn.Module.__dict__
