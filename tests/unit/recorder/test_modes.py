"""Holds init()'s modes to hooking what was asked for, and shutdown() to leaving nothing."""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import traceml  # noqa: E402
from tests.unit.recorder.conftest import VERSION, Recording, seen, since  # noqa: E402
from tests.unit.recorder.foreign import ALL, Foreign, parts, torch_loader, train  # noqa: E402
from traceml.recorder import step as _step  # noqa: E402
from traceml.recorder.hooks.stand import METHOD, SLOT  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.phases import PHASE_INDEX  # noqa: E402
from traceml.schema.records import Fault, Watching  # noqa: E402

pytestmark = pytest.mark.torch
INPUT = PHASE_INDEX["input"]


@since(2, 1)  # before, the compiler is not loaded yet, and is waited for
def test_manual_mode_hooks_nothing(tmp_path: Path) -> None:
    before = patched_names()
    recording = Recording(tmp_path, only=())
    during = patched_names()
    model, optimizer = parts()
    train(model, optimizer, torch_loader())
    inside = dict(model.__dict__)

    steps = recording.steps()

    assert during == before
    assert [seen(step) for step in steps] == [set()] * 5
    assert SLOT not in inside
    assert {m.unseen["forward"] for m in recording.messages if isinstance(m, Watching)}


@since(2, 0)
def test_manual_mode_sees_exactly_what_is_wrapped(manual: Recording) -> None:
    model, optimizer = parts()
    other = nn.Linear(8, 8)
    loader = traceml.wrap_dataloader(torch_loader())
    assert traceml.wrap_forward(model) is model
    assert traceml.wrap_optimizer(optimizer) is optimizer
    for x, y in loader:
        with trace_step(model, other):
            loss = nn.functional.cross_entropy(model(other(x)), y)
            traceml.wrap_backward(loss).backward()
            optimizer.step()

    steps = manual.steps()

    assert [seen(step) for step in steps] == [ALL] * 5
    assert [(s.num_micro_batches, s.num_optimizer_steps, s.num_samples) for s in steps] == [(1, 1, 4)] * 5
    assert SLOT not in model.__dict__
    assert not optimizer._optimizer_step_pre_hooks
    assert set(manual.builder.state.watched) == ALL | {"eval"}


@pytest.mark.parametrize("phase", ["input", "forward", "backward", "optimizer"])
def test_selective_mode_hooks_exactly_what_was_asked_for(tmp_path: Path, phase: str) -> None:
    recording = Recording(tmp_path, only=(phase,))
    model, optimizer = parts()
    train(model, optimizer, torch_loader())

    steps = recording.steps()

    assert [seen(step) - {"eval"} for step in steps] == [{phase}] * 5
    assert set(recording.builder.state.watched) - {"eval"} == {phase}
    assert set(recording.builder.state.unwatched) >= ALL - {phase}


def test_hooks_that_were_not_asked_for_come_off_when_the_script_says_so_late(recording: Recording) -> None:
    model, optimizer = parts()
    train(model, optimizer, torch_loader())
    recording.session.keep(("backward",))
    train(model, optimizer, torch_loader())

    steps = recording.steps()

    assert [seen(step) for step in steps] == [ALL] * 5 + [{"backward"}] * 5
    assert set(recording.builder.state.watched) == {"backward"}
    assert recording.builder.state.unwatched["input"] == "not asked for in init()"
    assert not [message for message in recording.messages if isinstance(message, Fault)]


def test_a_wrapped_loss_is_a_tensor_where_backward_is_watched_and_computes_like_one_where_not(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    loss = torch.ones(1, requires_grad=True).sum()
    assert traceml.wrap_backward(loss) is loss
    recording.session.close("end")

    recording = Recording(tmp_path, only=())
    loss = torch.ones(1, requires_grad=True).sum()
    wrapped = traceml.wrap_backward(loss)
    assert isinstance(wrapped, torch.Tensor)
    computed = (wrapped / 4, 2 * wrapped, torch.stack([wrapped]).sum(), wrapped + wrapped)
    assert [one.item() for one in computed] == [0.25, 2, 1, 2]
    assert not torch.isnan(wrapped)
    with trace_step():
        wrapped.backward()
    assert [seen(step) for step in recording.steps()] == [{"backward"}]


@since(2, 0)
def test_a_later_run_of_the_process_sees_what_was_wrapped_in_an_earlier_one(tmp_path: Path) -> None:
    model, optimizer = parts()
    loader = traceml.wrap_dataloader(Foreign())
    traceml.wrap_forward(model)
    traceml.wrap_optimizer(optimizer)
    for _ in range(2):
        recording = Recording(tmp_path, only=())
        train(model, optimizer, loader)

        assert [seen(step) for step in recording.steps()] == [ALL - {"backward"}] * 5
        assert SLOT not in model.__dict__


def test_without_a_recording_and_when_disabled_everything_wrapped_works(monkeypatch: pytest.MonkeyPatch) -> None:
    _step.begin_session(None)
    model, optimizer = parts()
    foreign = Foreign()
    train(traceml.wrap_forward(model), traceml.wrap_optimizer(optimizer), traceml.wrap_dataloader(foreign))
    monkeypatch.setenv("TRACEML_DISABLED", "1")

    assert traceml.wrap_dataloader(foreign) is foreign
    assert traceml.wrap_optimizer(foreign) is foreign
    traceml.wrap_backward(model(torch.ones(1, 8)).sum()).backward()
    assert SLOT not in model.__dict__


def test_a_patch_argument_needs_the_selective_mode() -> None:
    with pytest.raises(traceml.errors.UsageError) as caught:
        traceml.init(mode="manual", patch_forward=True)

    assert caught.value.slug == "bad-argument"


def patched_names() -> list[Any]:
    """Everything in torch and Python that a recording can replace or add to."""
    import sys

    from torch.optim import optimizer as optim
    from torch.utils.data import dataloader

    dynamo = sys.modules.get("torch._dynamo")
    handler = getattr(dynamo, "callback_handler", SimpleNamespace(start_callbacks=[], end_callbacks=[]))
    wrapper = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", object)
    return [
        getattr(torch.autograd, "_engine_run_backward", None),
        torch.autograd.Variable._execution_engine,
        torch.save,
        torch.serialization.save,
        dataloader.DataLoader.__iter__,
        dataloader._BaseDataLoaderIter.__next__,
        len(getattr(optim, "_global_optimizer_pre_hooks", ())),
        len(getattr(optim, "_global_optimizer_post_hooks", ())),
        (torch.optim.SGD.step, vars(torch.optim.Optimizer).get("_hook_for_profile")),
        list(gc.callbacks),
        dict(vars(nn.Module)),
        dict(vars(wrapper)),
        (list(handler.start_callbacks), list(handler.end_callbacks), sorted(vars(handler))),
        list(sys.meta_path),
        list(torch.jit._recursive.ignored_attributes),
        getattr(torch, "compile", None),
    ]


def test_twenty_runs_in_one_process_leave_the_names_as_they_were_and_no_hook_more(tmp_path: Path) -> None:
    if VERSION >= (2, 1):
        importlib.import_module("torch._dynamo")  # a name that is compared

    model, optimizer = parts()
    before, inside = patched_names(), []
    for number in range(20):
        recording = Recording(tmp_path)
        train(model, optimizer, torch_loader(2))
        with trace_step(model):
            model.forward(torch.ones(1, 8)).sum().backward()
        found = patched_names()
        inside.append((found[6:8], len(found[9]), len(found[12][0]), len(recording.session.pen.guard.hooks)))
        recording.session.close("shutdown")
        if number % 5 == 0:
            assert patched_names() == before

    assert patched_names() == before
    assert len({str(one) for one in inside}) == 1
    assert not {SLOT, METHOD} & set(model.__dict__)
