"""Shows what is taken of torch.distributed, when, and that it is given back; several ranks are a stand-in here."""

from __future__ import annotations

import copy
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import autograd, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests.unit.recorder.conftest import Recording, seen  # noqa: E402
from traceml.recorder.hooks import sync, sync_groups  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema import phases  # noqa: E402
from traceml.schema.records import StepRecord, Watching  # noqa: E402
from traceml.schema.syncs import CollectiveWait  # noqa: E402

SYNC, BACKWARD = phases.PHASE_INDEX[phases.SYNC], phases.PHASE_INDEX[phases.BACKWARD]
PLACES = (
    (dist.Work, "wait"),
    (dist.ProcessGroup, "monitored_barrier"),
    (dist.ProcessGroup, "send"),
    (DistributedDataParallel, "_sync_buffers"),
    (torch.autograd, "_engine_run_backward"),
)


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def ranks(group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """A recording that takes this process for one of several ranks."""
    monkeypatch.setattr(sync, "has_several_ranks", lambda: True)
    made = Recording(tmp_path)
    yield made
    made.session.close("end")


def taken() -> list[Any]:
    """What stands there, as it stands there: `getattr` of a C++ class would make something else of it."""
    return [owner.__dict__.get(name) for owner, name in PLACES]


def train(model: Any, num_steps: int = 3, *, within: Any = lambda: None) -> None:
    for _ in range(num_steps):
        with trace_step(model):
            loss = model(torch.ones(4, 8)).sum()
            loss.backward()
            within()


def sync_of(record: StepRecord) -> int:
    return record.phase_ns[SYNC] or 0


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`Work.wait` takes 5 ms; set before the recording takes it."""
    real = dist.Work.wait
    state = {"error": None}

    def wait(work: Any, *args: Any) -> Any:
        time.sleep(5e-3)
        if state["error"] is not None:
            raise state["error"]
        return real(work, *args)

    monkeypatch.setattr(dist.Work, "wait", wait)
    return state


def test_one_rank_pays_nothing_and_has_no_sync(group: None, tmp_path: Path) -> None:
    before = taken()[:-1]
    made = Recording(tmp_path)
    assert taken()[:-1] == before
    assert made.session.pen.split_backward is None
    train(nn.Linear(8, 2))

    assert all(phases.SYNC not in seen(step) for step in made.steps())
    assert phases.SYNC not in made.session.pen.watched


def test_everything_is_given_back(group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = taken()
    monkeypatch.setattr(sync, "has_several_ranks", lambda: True)
    made = Recording(tmp_path)
    assert all(now is not then for now, then in zip(taken(), before) if then is not None)
    made.session.close("end")

    assert taken() == before


@pytest.mark.parametrize("name", ["send", "allreduce", "barrier"])
def test_what_was_given_back_is_a_method_as_before(ranks: Recording, name: str) -> None:
    before = dict(dist.ProcessGroup.__dict__)
    groups = sync_groups.Groups(ranks.session.pen)
    groups._watch(("send", "allreduce", "barrier"), "why", whole_too=True)
    assert dist.ProcessGroup.__dict__[name] is not before[name]

    groups.remove()

    assert dict(dist.ProcessGroup.__dict__) == before
    assert dist.ProcessGroup.__dict__[name].__get__(dist.group.WORLD, dist.ProcessGroup).__self__ is dist.group.WORLD


def test_a_backward_ends_where_the_wait_of_the_reducer_begins(ranks: Recording) -> None:
    train(DistributedDataParallel(nn.Linear(8, 2)))
    records = ranks.steps()

    assert all({"backward", "sync"} <= seen(step) for step in records)
    assert all(step.sync is not None and step.sync.num_syncs == 1 for step in records)
    assert any(isinstance(m, Watching) and phases.SYNC in m.phases for m in ranks.messages)


class Halves(nn.Module):  # type: ignore[misc]
    """Uses its second half in every other call only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.num_calls = nn.Linear(8, 2), nn.Linear(8, 2), 0

    def forward(self, x: Any) -> Any:
        self.num_calls += 1
        return self.second(x) if self.num_calls % 2 else self.first(x)


def test_a_backward_without_some_parameters_is_split_by_its_root(ranks: Recording) -> None:
    train(DistributedDataParallel(Halves(), find_unused_parameters=True), 6)

    assert all(step.sync is not None and step.sync.num_syncs == 1 for step in ranks.steps())


def test_a_model_that_is_not_traced_is_split_by_its_root_from_the_second_backward_on(ranks: Recording) -> None:
    train(DistributedDataParallel(nn.Linear(8, 2)))
    other = DistributedDataParallel(nn.Linear(8, 2))
    for _ in range(3):
        with trace_step():
            other(torch.ones(4, 8)).sum().backward()

    assert [step.sync is not None for step in ranks.steps()] == [True, True, True, False, True, True]


def test_hooks_that_are_taken_anew_a_thousand_times_keep_no_more_than_once(ranks: Recording) -> None:
    pen = ranks.session.pen
    train(DistributedDataParallel(nn.Linear(8, 2)))
    pen.skip_code, pen.await_compiler = None, lambda: None  # as where the compiler is not loaded
    pen.renew()
    num_skipped, num_swaps = len(pen.skipped), len(pen.swaps)
    for _ in range(1000):
        pen.renew()  # as the bill does twice in each step that it clocks

    assert (len(pen.skipped), len(pen.swaps)) == (num_skipped, num_swaps)


def test_nothing_of_ours_is_on_the_parameters_nor_left_on_their_nodes(ranks: Recording) -> None:
    model = DistributedDataParallel(nn.Linear(8, 2))
    train(model)
    bias = model.module.bias
    ranks.session.close("end")
    model(torch.ones(4, 8)).sum().backward()

    assert not bias._backward_hooks
    assert not getattr(bias, "_post_accumulate_grad_hooks", None)
    assert set(vars(copy.deepcopy(bias))) == set(vars(nn.Linear(8, 2).bias))
    assert ranks.session.pen.split_backward is None


def test_gradients_and_hooks_are_what_they_are_without_us(ranks: Recording) -> None:
    x = torch.ones(4, 8, requires_grad=True)
    with trace_step():
        y = (x * 3).sum()
        y.backward(retain_graph=True)
        (gradient,) = torch.autograd.grad(y, x)

    assert torch.equal(x.grad, torch.full((4, 8), 3.0))
    assert torch.equal(gradient, x.grad)
    assert not y._backward_hooks


def test_a_collective_of_the_script_waits_in_sync_and_is_named_with_its_line(slow: Any, ranks: Recording) -> None:
    train(nn.Linear(8, 2), within=lambda: dist.all_reduce(torch.ones(1)))
    records = ranks.steps()

    assert all(sync_of(step) >= 4_000_000 for step in records)
    waits = [message for message in ranks.messages if isinstance(message, CollectiveWait)]
    assert [(wait.call, wait.where.partition(":")[0]) for wait in waits] == [("all_reduce", "test_sync.py")]
    assert [(event.kind, event.text) for event in ranks.events if event.kind == "wait"] == [
        ("wait", f"all_reduce at {waits[0].where}")
    ]


def test_a_step_that_fails_while_it_waits_failed_in_sync(slow: Any, ranks: Recording) -> None:
    train(nn.Linear(8, 2))
    slow["error"] = RuntimeError("Connection closed by peer")
    with pytest.raises(RuntimeError, match="by peer"):
        train(nn.Linear(8, 2), 1, within=lambda: dist.all_reduce(torch.ones(1)))
    slow["error"] = None
    train(nn.Linear(8, 2), 1, within=lambda: dist.all_reduce(torch.ones(1)))
    records = ranks.steps()

    assert [step.failed_in for step in records] == [None, None, None, "sync", None]
    assert sync_of(records[-1]) >= 4_000_000


def test_a_wait_in_another_thread_is_not_the_trainings(slow: Any, ranks: Recording) -> None:
    def communicate() -> None:
        thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(1)))
        thread.start()
        thread.join()

    train(nn.Linear(8, 2), within=communicate)

    assert all(sync_of(step) < 4_000_000 for step in ranks.steps())


def test_a_backward_that_raises_leaves_nothing_open(ranks: Recording) -> None:
    class Broken(autograd.Function):  # type: ignore[misc]  # torch is Any where it is not installed
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, _gradient: Any) -> Any:
            raise ValueError("in backward")

    with pytest.raises(ValueError, match="in backward"), trace_step():
        Broken.apply(torch.ones(2, requires_grad=True)).sum().backward()
    train(DistributedDataParallel(nn.Linear(8, 2)))
    records = ranks.steps()

    assert records[0].failed_in == "backward"
    assert all("sync" in seen(step) for step in records[1:])


def test_a_fault_of_ours_at_the_root_is_counted_and_the_training_goes_on(
    ranks: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "_hook", lambda *_: 1 / 0)
    train(nn.Linear(8, 2), 5)

    assert not ranks.session.pen.guard.is_on(sync.HOOK)
    assert len(ranks.steps()) == 5
    assert torch.autograd._engine_run_backward.__name__ == "_engine_run_backward"


def test_a_functional_collective_is_named_as_one_with_the_line_that_first_uses_its_result(
    ranks: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    functional = pytest.importorskip("torch.distributed._functional_collectives")
    monkeypatch.setattr(sync, "_NAMED_S", 0.0)
    train(nn.Linear(8, 1), num_steps=1)

    with trace_step():
        reduced = functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
        (reduced + 1).sum()
    ranks.steps()

    (wait,) = (message for message in ranks.messages if isinstance(message, CollectiveWait))
    assert wait.call == "functional collective"
    assert wait.where.startswith("test_sync.py:")
