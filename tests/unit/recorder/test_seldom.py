"""Holds what is not done at every step to being done all the same: keeping house, asking about compilers, looking."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import BatchSampler, DataLoader, SequentialSampler  # noqa: E402

from tests.unit.recorder.conftest import Recording, seen  # noqa: E402
from tests.unit.recorder.models import Small, work  # noqa: E402
from traceml.recorder import pen, step  # noqa: E402
from traceml.recorder.hooks import loader  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema import phases  # noqa: E402
from traceml.schema.records import Fault  # noqa: E402
from traceml.wire import edges  # noqa: E402

pytestmark = pytest.mark.torch


def num_house(recording: Recording) -> int:
    return bytes(recording.session.pen.ring.codes).count(edges.STEP_NUMBER)


def test_house_is_kept_behind_each_of_the_first_steps_and_then_by_the_clock(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pen, "HOUSE_S", 60.0)
    for _ in range(200):
        with trace_step():
            pass

    assert num_house(recording) == 3


def test_house_is_kept_behind_every_step_that_is_longer_than_its_interval(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pen, "HOUSE_S", 0.0)
    for _ in range(20):
        with trace_step():
            pass

    assert num_house(recording) == 20


def hooks_of_steps() -> list[Any]:
    module: Any = sys.modules["torch.optim.optimizer"]
    return [*module._global_optimizer_pre_hooks.values(), *module._global_optimizer_post_hooks.values()]


def is_asking(hook: Any) -> bool:
    return bool(hook.__name__ == "compilable")


def test_an_optimizers_hooks_ask_for_a_compiler_once_there_is_one(recording: Recording) -> None:
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(4):
        if number == 2:
            before = [is_asking(hook) for hook in hooks_of_steps()]
            recording.session.pen.compiles()
        with trace_step(model):
            work(model)
            optimizer.step()
    after = [is_asking(hook) for hook in hooks_of_steps()]

    assert (before, after) == ([False] * 2, [True] * 2)
    assert [record.num_optimizer_steps for record in recording.steps()] == [1] * 4


def test_where_nobody_would_say_that_there_is_a_compiler_they_always_ask(tmp_path: Path) -> None:
    recording = Recording(tmp_path, only=(phases.OPTIMIZER,))
    asking = [is_asking(hook) for hook in hooks_of_steps()]
    recording.session.close("end")

    assert asking == [True] * 2


def test_a_compilers_hook_that_comes_off_leaves_them_asking(recording: Recording) -> None:
    recording.session.pen.guard.remove("compile")

    assert all(is_asking(hook) for hook in hooks_of_steps() if getattr(hook, "pen", None) is recording.session.pen)


def test_batches_of_a_loader_without_a_size_are_counted_one_by_one_whatever_they_are(recording: Recording) -> None:
    def pair(size: int) -> Any:
        return torch.ones(size, 4), torch.ones(size)

    batches: list[Any] = [pair(8), pair(8), pair(8), pair(8), pair(5), [torch.ones(7, 2)], {"x": torch.ones(3)}]
    batches += [torch.ones(6, 4), (1, 2), pair(0), pair(9)]
    for _ in DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch):
        with trace_step():
            torch.ones(1, requires_grad=True).sum().backward()

    assert [record.num_samples for record in recording.steps()] == [8, 8, 8, 8, 5, 7, 3, 6, None, 0, 9]


def train_on_pairs(sizes: list[int]) -> None:
    batches = [(torch.ones(size, 4), torch.ones(size)) for size in sizes]
    for _ in DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch):
        with trace_step():
            torch.ones(1, requires_grad=True).sum().backward()


def num_looks(recording: Recording) -> int:
    return bytes(recording.session.pen.codes).count(edges.SAMPLES)


def test_batches_that_are_all_alike_are_looked_into_now_and_then(recording: Recording) -> None:
    train_on_pairs([8] * 400)
    looks = num_looks(recording)

    assert [record.num_samples for record in recording.steps()] == [8] * 400
    assert loader.NUM_ALIKE <= looks < 200  # ten a second and one at the end


def test_batches_of_changing_sizes_are_all_looked_into(recording: Recording) -> None:
    sizes = [8, 7] * 150
    train_on_pairs(sizes)

    assert [record.num_samples for record in recording.steps()] == sizes


def test_a_batch_sampler_of_torchs_says_its_size_whatever_the_batches_are(recording: Recording) -> None:
    sampler = BatchSampler(SequentialSampler(range(42)), batch_size=16, drop_last=False)
    for _ in DataLoader(torch.ones(42, 3, 8), batch_sampler=sampler, collate_fn=lambda batch: tuple(zip(batch))):
        with trace_step():
            torch.ones(1, requires_grad=True).sum().backward()

    assert [record.num_samples for record in recording.steps()] == [16, 16, 10]


def test_a_batch_that_cannot_be_counted_costs_the_count_and_nothing_else(recording: Recording) -> None:
    class Nested:
        @property
        def shape(self) -> Any:
            message = "no sizes"
            raise RuntimeError(message)

    for _ in DataLoader([Nested() for _ in range(20)], batch_size=None, collate_fn=lambda batch: batch):
        with trace_step():
            torch.ones(1, requires_grad=True).sum().backward()
    steps = recording.steps()

    assert [record.num_samples for record in steps] == [None] * 20
    assert all("input" in seen(record) for record in steps)
    assert not [body for body in recording.messages if isinstance(body, Fault)]


def test_a_size_that_changes_late_is_seen_at_the_next_housekeeping_and_for_good(recording: Recording) -> None:
    batches = [(torch.ones(size, 4), torch.ones(size)) for size in [8] * 100 + [5, 6] * 20]
    for number, _ in enumerate(DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch)):
        with trace_step():
            torch.ones(1, requires_grad=True).sum().backward()
            if number == 99:
                recording.session.pen.tend_soon()

    found = [record.num_samples for record in recording.steps()]

    assert found[:100] == [8] * 100
    assert found[100:] == [5, 6] * 20


def test_where_no_forward_is_to_be_seen_no_step_looks_for_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(step, "attach", lambda *given: asked.append(given))
    recording, model = Recording(tmp_path, only=(phases.BACKWARD,)), Small()
    for _ in range(3):
        with trace_step(model):
            work(model)

    assert [seen(record) for record in recording.steps()] == [{"backward"}] * 3
    assert asked == []
