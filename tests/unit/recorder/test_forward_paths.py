"""Holds the forward hook to what it sees, whatever path calls the model."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests.unit.recorder.conftest import Recording, seen, since  # noqa: E402
from tests.unit.recorder.models import COMPUTE, Agent, Recursive, Small, steps_of, work  # noqa: E402
from traceml.recorder.hooks.stand import METHOD, SLOT  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.phases import PHASE_INDEX  # noqa: E402
from traceml.schema.records import Fault  # noqa: E402
from traceml.wire import edges  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("nothing_compiled")]


def num_forwards(recording: Recording) -> int:
    return bytes(recording.session.pen.codes[:4000]).count(edges.FORWARD)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@since(2, 1)
def test_a_model_called_past_its_call_is_seen_from_the_second_step_on(recording: Recording) -> None:
    model = Small()

    steps = steps_of(recording, model, call=lambda x: model.forward(x, scale=2.0))

    assert [seen(step) for step in steps] == [{"backward"}, COMPUTE, COMPUTE]
    assert METHOD not in model.__dict__


def test_a_forward_that_the_script_replaced_itself_stays_the_scripts(recording: Recording) -> None:
    model, calls = Small(), []
    real = model.forward

    def mine(x: Any, scale: float) -> Any:
        calls.append(1)
        return real(x, scale)

    model.__dict__[METHOD] = mine
    steps = steps_of(recording, model, call=lambda x: model.forward(x, 1.0))

    assert [seen(step) for step in steps][1:] == [COMPUTE, COMPUTE]
    assert (len(calls), model.__dict__[METHOD]) == (3, mine)


def test_an_agent_whose_forward_is_never_called_has_no_forward_rather_than_none_of_it(recording: Recording) -> None:
    agent = Agent()

    steps = steps_of(recording, agent, call=agent.values)

    assert [step.phase_ns[PHASE_INDEX["forward"]] for step in steps] == [None] * 3


@since(2, 1)
def test_a_compilation_takes_our_forward_off_for_good(recording: Recording) -> None:
    model = Small()
    for _ in range(2):
        with trace_step(model):
            work(model.forward)
    assert METHOD in model.__dict__

    called = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(2):
        with trace_step(model):
            work(called)

    assert METHOD not in model.__dict__
    assert [seen(step) & COMPUTE for step in recording.steps()][1:] == [COMPUTE] * 3


@pytest.mark.parametrize("is_wrapper_traced", [True, False])
def test_ddp_is_seen_once_whichever_of_both_is_traced(
    recording: Recording, one_process: None, is_wrapper_traced: bool
) -> None:
    inner = Small()
    wrapper = nn.parallel.DistributedDataParallel(inner)

    steps = steps_of(recording, wrapper if is_wrapper_traced else inner, call=wrapper)

    assert [seen(step) for step in steps] == [COMPUTE] * 3
    assert num_forwards(recording) == 3


def test_the_module_inside_a_traced_wrapper_is_seen_when_it_is_called_alone(
    recording: Recording, one_process: None
) -> None:
    wrapper = nn.parallel.DistributedDataParallel(Small())

    steps = steps_of(recording, wrapper, call=wrapper.module)

    assert [seen(step) for step in steps] == [COMPUTE] * 3


@since(2, 1)
def test_a_compiled_root_from_torch_nn_that_was_compiled_before_us_is_seen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    called = torch.compile(model, backend="eager")
    recording = Recording(tmp_path)

    steps = steps_of(recording, model, call=called)

    assert [seen(step) & COMPUTE for step in steps] == [COMPUTE] * 3
    assert not {SLOT} & (set(model.__dict__) | set(called.__dict__))


def test_two_models_that_call_each_other_are_one_forward_each_step(recording: Recording) -> None:
    first, second = Small(), Small()

    steps_of(recording, first, second, call=lambda x: second(first(x)))

    assert num_forwards(recording) == 6


def test_a_model_that_calls_itself_is_one_forward(recording: Recording) -> None:
    model = Recursive()

    steps_of(recording, model, call=model)

    assert num_forwards(recording) == 3


def test_a_shared_layer_and_an_unused_one_change_nothing(recording: Recording) -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(OrderedDict(a=shared, b=nn.ReLU(), again=shared))
    model.unused = nn.Linear(4, 4)

    steps = steps_of(recording, model, call=lambda x: model.again(model.b(model.a(x))) + model[:3](x))

    assert [seen(step) for step in steps] == [{"backward"}] * 3
    assert not any(isinstance(message, Fault) for message in recording.messages)


@since(2, 0)
@pytest.mark.parametrize("is_reentrant", [True, False])
def test_what_checkpointing_computes_again_is_backward(recording: Recording, is_reentrant: bool) -> None:
    block = Small()

    class Checkpointed(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: Any) -> Any:
            return checkpoint(self.block, x, use_reentrant=is_reentrant)

    model = Checkpointed()
    for _ in range(3):
        with trace_step(model, block):
            model(torch.ones(2, 4, requires_grad=True)).sum().backward()

    assert [seen(step) for step in recording.steps()] == [COMPUTE] * 3
    assert num_forwards(recording) == 3


@since(2, 1)
def test_functional_calls_and_transforms_run_as_without_us_and_are_steps(recording: Recording) -> None:
    model = Small()
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(changed: Any, x: Any) -> Any:
        return torch.func.functional_call(model, changed, (x,)).sum()

    bare = torch.func.grad(loss)(weights, torch.ones(2, 4))
    for _ in range(3):
        with trace_step(model):
            traced = torch.func.grad(loss)(weights, torch.ones(2, 4))
            mapped = torch.func.vmap(loss, in_dims=(None, 0))(weights, torch.ones(3, 2, 4))

    assert all(torch.equal(bare[name], traced[name]) for name in bare)
    assert mapped.shape == (3,)
    assert [seen(step) for step in recording.steps()] == [COMPUTE] * 3


def test_an_unhashable_model_is_seen(recording: Recording) -> None:
    class Unhashable(Small):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    models = [Unhashable(), Unhashable()]
    nn.Module.__hash__(models[0])
    forwards = [nn.Module.__call__.__get__(model) for model in models]
    for _ in range(3):
        with trace_step(*models):
            forwards[1](torch.ones(1, 4)).sum()

    assert [seen(step) for step in recording.steps()] == [{"forward"}] * 3
