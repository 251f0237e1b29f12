"""Trains from a loader that fetches one batch ahead, as accelerate's does: the last batch of an epoch counts, too."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")

from tests.unit.recorder.conftest import Recording, seen  # noqa: E402
from tests.unit.recorder.foreign import ALL, parts, torch_loader  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402

pytestmark = pytest.mark.torch


def one_ahead(loader: Any) -> Iterator[Any]:
    """Yields a batch once the next one is there, so that it can tell the last one."""
    batches = iter(loader)
    here = next(batches)
    for there in batches:
        yield here
        here = there
    yield here


def train(*, num_batches: int, every: int, epochs: int = 3, traced: bool) -> None:
    model, optimizer = parts()
    for _ in range(epochs):
        for number, (x, y) in enumerate(one_ahead(torch_loader(num_batches))):
            is_due = (number + 1) % every == 0 or number + 1 == num_batches
            if not traced:
                train_on(model, optimizer, x, y, is_due=is_due)
                continue
            with trace_step(model):
                train_on(model, optimizer, x, y, is_due=is_due)


def train_on(model: Any, optimizer: Any, x: Any, y: Any, *, is_due: bool) -> None:
    torch.nn.functional.cross_entropy(model(x), y).backward()
    if is_due:
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("num_batches", [1, 2, 3, 7])
def test_a_traced_epochs_batches_are_all_counted_once(recording: Recording, num_batches: int) -> None:
    train(num_batches=num_batches, every=1, traced=True)

    steps = recording.steps()

    assert len(steps) == 3 * num_batches
    assert sum(step.num_micro_batches for step in steps) == 3 * num_batches
    assert sum(step.num_samples or 0 for step in steps) == 12 * num_batches
    assert "eval" not in {phase for step in steps for phase in seen(step)}


@pytest.mark.parametrize(("num_batches", "every", "groups"), [(2, 1, 2), (7, 1, 7), (11, 4, 3), (9, 4, 3), (8, 4, 2)])
def test_inferred_steps_are_an_epochs_updates(recording: Recording, num_batches: int, every: int, groups: int) -> None:
    train(num_batches=num_batches, every=every, traced=False)

    steps = recording.steps()

    assert [step.num_optimizer_steps for step in steps] == [1] * (3 * groups)
    assert sum(step.num_micro_batches for step in steps) == 3 * num_batches
    assert recording.builder.state.unsure == ""
    assert all(seen(step) <= ALL for step in steps)
