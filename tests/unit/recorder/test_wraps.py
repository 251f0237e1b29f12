"""Holds the wraps to their promises: what is wrapped is seen once, works as before, and is the user's own again."""

from __future__ import annotations

import copy
import inspect
import pickle
import queue
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

import traceml  # noqa: E402
from tests.unit.recorder.conftest import Recording, seen, since  # noqa: E402
from tests.unit.recorder.foreign import ALL, Foreign, ForeignOptimizer, parts, torch_loader, train  # noqa: E402
from traceml.recorder.step import region, trace_step  # noqa: E402
from traceml.schema.phases import PHASE_INDEX  # noqa: E402
from traceml.schema.records import LoaderInfo, StepRecord  # noqa: E402
from traceml.wire import edges  # noqa: E402

pytestmark = pytest.mark.torch
INPUT = PHASE_INDEX["input"]


def fetches(steps: list[StepRecord]) -> list[int]:
    return [step.num_micro_batches for step in steps]


def test_a_foreign_loader_is_input_with_a_number_of_its_own(recording: Recording) -> None:
    loader = traceml.wrap_dataloader(Foreign())
    train(*parts(), loader)
    train(*parts(), torch_loader())

    steps = recording.steps()

    assert [seen(step) for step in steps] == [ALL] * 10
    assert [step.num_samples for step in steps] == [4] * 10
    assert [(m.number, m.dataset) for m in recording.messages if isinstance(m, LoaderInfo)] == [
        (1, "Foreign"),
        (2, "TensorDataset"),
    ]


def test_what_stands_for_a_loader_is_like_it_in_every_respect() -> None:
    foreign = Foreign()
    loader = traceml.wrap_dataloader(foreign)

    loader.epoch = 3
    copied = copy.deepcopy(loader)

    assert (len(loader), loader.batch_size, foreign.epoch, isinstance(loader, Foreign)) == (5, 4, 3, True)
    assert (loader == foreign, hash(loader) == hash(foreign), bool(loader)) == (True, True, True)
    assert (type(copied), type(pickle.loads(pickle.dumps(loader)))) == (Foreign, Foreign)
    assert traceml.wrap_dataloader(loader) is loader
    assert len(list(loader)) == 5
    with pytest.raises(AttributeError):
        loader.sampler  # noqa: B018
    with pytest.raises(TypeError):
        len(traceml.wrap_dataloader(row for row in [0]))


def test_a_generator_is_input_and_still_a_generator(recording: Recording) -> None:
    heard: list[Any] = []

    def batches() -> Any:
        try:
            for _ in range(5):
                word = yield torch.ones(4, 8), torch.zeros(4, dtype=torch.long)
                heard.append(word)  # a comprehension cannot be sent to
        finally:
            heard.append("closed")

    loader = traceml.wrap_dataloader(batches())
    assert inspect.isgenerator(loader)
    train(*parts(), loader)
    again = traceml.wrap_dataloader(batches())
    next(again)
    again.send("word")
    again.close()

    assert [seen(step) for step in recording.steps()] == [ALL] * 5
    assert heard[-2:] == ["word", "closed"]


def test_a_loader_that_is_watched_anyway_counts_once(recording: Recording) -> None:
    native = torch_loader()
    assert traceml.wrap_dataloader(native) is native

    class Outer:
        def __iter__(self) -> Any:
            yield from native

    train(*parts(), traceml.wrap_dataloader(Outer()))

    steps = recording.steps()
    assert fetches(steps) == [1] * 5
    assert bytes(recording.session.pen.codes[:2000]).count(edges.INPUT) == 6


def test_a_loader_wrapped_before_the_run_began_counts_once_too(tmp_path: Path) -> None:
    loader = traceml.wrap_dataloader(torch_loader())
    assert isinstance(loader, DataLoader)
    recording = Recording(tmp_path)
    train(*parts(), loader)

    steps = recording.steps()

    assert (fetches(steps), [step.num_samples for step in steps]) == ([1] * 5, [4] * 5)
    assert len([m for m in recording.messages if isinstance(m, LoaderInfo)]) == 1


def test_waiting_for_a_prefetching_thread_is_input_once_its_queue_is_wrapped(recording: Recording) -> None:
    batches: Any = queue.Queue(maxsize=2)

    def read() -> None:
        for batch in Foreign(num_batches=12, wait_s=0.05):
            batches.put(batch)
        batches.put(None)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in traceml.wrap_dataloader(iter(batches.get, None)):
        with trace_step():
            pass
    thread.join()

    steps = recording.steps()
    assert [seen(step) for step in steps] == [{"input"}] * 12
    assert sum(step.phase_ns[INPUT] or 0 for step in steps) > sum(step.period_ns for step in steps[1:]) / 2


def test_batches_made_by_hand_are_no_input_until_they_are_wrapped(recording: Recording) -> None:
    def get_batch() -> Any:
        return torch.ones(4, 8), torch.zeros(4, dtype=torch.long)

    def batches() -> Any:
        for _ in range(3):
            with region("tokenize"):
                yield get_batch()

    train(*parts(), (get_batch() for _ in range(3)))
    train(*parts(), traceml.wrap_dataloader(get_batch() for _ in range(3)))

    steps = recording.steps()
    assert [step.phase_ns[INPUT] is None for step in steps] == [True] * 3 + [False] * 3


def test_a_fetch_inside_the_step_is_input_and_no_rest(recording: Recording) -> None:
    model, optimizer = parts()
    iterator = iter(traceml.wrap_dataloader(Foreign(num_batches=6, wait_s=0.02)))
    for _ in range(6):
        with trace_step(model):
            x, _ = next(iterator)
            model(x).sum().backward()
            optimizer.step()

    records = recording.steps()[1:]

    rests = sorted((record.phase_ns[PHASE_INDEX["in_step"]] or 0) / (record.phase_ns[INPUT] or 1) for record in records)
    assert (
        rests[len(rests) // 2] < 1 / 4
    )  # of five: one or two may have met a busy machine, and a fetch that is no input would show in all
    assert all(sum(ns or 0 for ns in record.phase_ns) == record.period_ns for record in records)


def test_breaking_out_of_a_wrapped_loader_and_beginning_again_is_two_epochs(recording: Recording) -> None:
    loader, (model, optimizer) = traceml.wrap_dataloader(Foreign()), parts()
    for _ in range(2):
        for batch in loader:
            with trace_step(model):
                model(batch[0]).sum().backward()
                optimizer.step()
            break

    assert fetches(recording.steps()) == [1, 1]


def test_everything_wrapped_although_it_is_watched_anyway_counts_once(recording: Recording) -> None:
    model, optimizer = parts()
    traceml.wrap_forward(model)
    optimizer = traceml.wrap_optimizer(optimizer)
    train(
        model,
        optimizer,
        traceml.wrap_dataloader(torch_loader()),
        backward=lambda loss: traceml.wrap_backward(loss).backward(),
    )

    steps = recording.steps()

    assert [(s.num_micro_batches, s.num_optimizer_steps) for s in steps] == [(1, 1)] * 5
    codes = bytes(recording.session.pen.codes[:2000])
    assert [codes.count(code) for code in (edges.FORWARD, edges.BACKWARD, edges.OPTIMIZER)] == [5, 5, 5]


def test_a_foreign_optimizer_is_seen_and_stays_itself(recording: Recording) -> None:
    model, _ = parts()
    foreign = ForeignOptimizer(model.parameters())
    optimizer = traceml.wrap_optimizer(foreign)
    optimizer.lr = 0.5
    train(model, optimizer, torch_loader())

    steps = recording.steps()

    assert [seen(step) for step in steps] == [ALL] * 5
    assert (foreign.num_steps, foreign.lr, isinstance(optimizer, ForeignOptimizer)) == (5, 0.5, True)
    assert traceml.wrap_optimizer(optimizer) is optimizer


def test_a_closure_of_a_foreign_optimizer_is_forward_and_backward(recording: Recording) -> None:
    model, _ = parts()
    optimizer = traceml.wrap_optimizer(ForeignOptimizer(model.parameters()))

    def closure() -> Any:
        loss = model(torch.ones(4, 8)).sum()
        loss.backward()
        return loss

    for _ in range(3):
        with trace_step(model):
            assert optimizer.step(closure) is not None

    assert [seen(step) for step in recording.steps()] == [ALL - {"input"}] * 3


@since(2, 0)
def test_a_torch_optimizer_with_wrapped_hooks_pickles_copies_and_schedules(manual: Recording) -> None:
    _, optimizer = parts()
    traceml.wrap_optimizer(optimizer)
    traceml.wrap_optimizer(optimizer)

    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    copied, pickled = copy.deepcopy(optimizer), pickle.dumps(optimizer)
    optimizer.step()
    scheduler.step()

    assert len(optimizer._optimizer_step_pre_hooks) == 1
    assert not copied._optimizer_step_pre_hooks
    assert b"traceml" not in pickled


def test_a_loss_function_and_an_engine_can_be_wrapped_too(manual: Recording) -> None:
    class Engine:
        scale = 2.0

        def backward(self, loss: Any) -> Any:
            (loss * self.scale).backward()

    model, _ = parts()
    engine = traceml.wrap_backward(Engine())
    compute = traceml.wrap_forward(lambda x: model(x).sum())
    run = traceml.wrap_backward(lambda loss: loss.backward())
    for _ in range(2):
        with trace_step():
            engine.backward(compute(torch.ones(4, 8)))
            run(compute(torch.ones(4, 8)))

    steps = manual.steps()

    assert [(seen(step), step.num_micro_batches) for step in steps] == [({"forward", "backward"}, 2)] * 2
    assert engine.scale == 2.0


def test_an_exception_of_what_is_wrapped_is_the_scripts(recording: Recording) -> None:
    def batches() -> Any:
        yield torch.ones(4, 8)
        raise ValueError("mine")

    loader = traceml.wrap_dataloader(batches())
    next(loader)
    with trace_step():
        pass
    with pytest.raises(ValueError, match="mine"):
        next(loader)
    with pytest.raises(TypeError), trace_step():
        traceml.wrap_optimizer(ForeignOptimizer([])).step(1, 2, 3)

    assert [step.failed_in for step in recording.steps()] == [None, "optimizer"]


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_fetch_in_the_step_that_fails_is_where_the_step_failed_and_one_that_runs_out_is_not(
    recording: Recording, *, is_wrapped: bool
) -> None:
    class Rows:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise OSError("the script's own")
            return torch.ones(8)

    loader = DataLoader(Rows(), batch_size=1)
    batches = iter(traceml.wrap_dataloader(iter(loader)) if is_wrapped else loader)
    with trace_step():
        next(batches)
    with pytest.raises(OSError, match="own"), trace_step():
        next(batches)
    with pytest.raises(StopIteration), trace_step():
        next(batches)

    assert [step.failed_in for step in recording.steps()] == [None, "input", "in_step"]
