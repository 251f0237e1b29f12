"""Trains without `trace_step` in the ways people do, and holds the inferred steps to the right number and phases."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from tests.unit.recorder.conftest import Recording, seen, since  # noqa: E402
from traceml.recorder.hooks.stand import METHOD, SLOT  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.schema.records import Fault  # noqa: E402

pytestmark = pytest.mark.torch
ALL = {"input", "forward", "backward", "optimizer"}


def model_of(size: int = 2) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, size))


def loader_of(num_batches: int = 5, **options: Any) -> Any:
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(num_batches * 4, 8), torch.randint(0, 2, (num_batches * 4,)))
    return DataLoader(data, batch_size=4, **options)


def sgd(*models: Any) -> Any:
    return torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)


def train(num_batches: int = 5, *, every: int = 1) -> tuple[list[float], Any]:
    model, criterion, losses = model_of(), nn.CrossEntropyLoss(), []
    optimizer = sgd(model)
    for number, (x, y) in enumerate(loader_of(num_batches)):
        loss = criterion(model(x), y)
        loss.backward()
        losses.append(loss.item())
        if (number + 1) % every == 0 or number + 1 == num_batches:
            optimizer.step()
            optimizer.zero_grad()
    return losses, model


def test_a_plain_loop_has_every_phase_from_its_first_step_on(recording: Recording) -> None:
    train(10)

    steps = recording.steps()

    assert [seen(step) for step in steps] == [ALL] * 10
    assert [(s.num_micro_batches, s.num_optimizer_steps, s.num_samples) for s in steps] == [(1, 1, 4)] * 10
    assert (recording.builder.state.inferred, recording.builder.state.unsure) == (True, "")
    assert recording.builder.state.training_loader == 1


def test_sixty_fetches_with_an_update_every_other_are_thirty_steps(recording: Recording) -> None:
    train(60, every=2)

    steps = recording.steps()

    assert [(s.num_micro_batches, s.num_optimizer_steps, s.num_samples) for s in steps] == [(2, 1, 8)] * 30
    assert recording.builder.state.unsure == ""


@pytest.mark.parametrize(("num_batches", "every", "groups"), [(11, 4, [4, 4, 3]), (17, 2, [2] * 8 + [1])])
def test_the_last_group_of_an_accumulation_is_short(
    recording: Recording, num_batches: int, every: int, groups: list[int]
) -> None:
    train(num_batches, every=every)

    steps = recording.steps()

    assert [step.num_micro_batches for step in steps] == groups
    assert recording.builder.state.unsure == ""


@pytest.mark.parametrize("every", [1, 4])
def test_accumulation_does_not_change_how_many_samples_are_counted(recording: Recording, every: int) -> None:
    train(32, every=every)

    assert sum(step.num_samples or 0 for step in recording.steps()) == 128


def test_losses_and_parameters_are_what_they_are_without_us(tmp_path: Path) -> None:
    bare, bare_model = train(12)
    state = torch.get_rng_state()

    recording = Recording(tmp_path)
    watched, model = train(12)
    assert torch.equal(torch.get_rng_state(), state)
    recording.session.close("end")

    assert watched == bare
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), bare_model.parameters()))


def test_stray_batches_belong_to_no_step(recording: Recording) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()
    optimizer, validation = sgd(model), loader_of(5)
    for _ in range(4):
        next(iter(loader_of()))
    for number, (x, y) in enumerate(loader_of(30)):
        criterion(model(x), y).backward()
        optimizer.step()
        if number in (10, 20):
            with torch.no_grad():
                for vx, _ in validation:
                    model(vx)

    steps = recording.steps()

    assert [step.num_micro_batches for step in steps] == [1] * 30
    assert [step.step for step in steps if "eval" in seen(step)] == [12, 22]
    assert recording.builder.state.unsure == ""


def test_an_evaluation_loader_after_every_epoch_makes_no_steps(recording: Recording) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()
    optimizer, loader, validation = sgd(model), loader_of(20), loader_of(6)
    for _ in range(5):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, _ in validation:
                model(x)

    steps = recording.steps()

    assert len(steps) == 100
    assert [step.step for step in steps if "eval" in seen(step)] == [21, 41, 61, 81]
    assert recording.builder.state.unsure == ""


def test_a_loss_module_transforms_and_a_frozen_network_are_not_forward(recording: Recording) -> None:
    model, frozen, norm = model_of(), model_of().requires_grad_(requires_grad=False), nn.LayerNorm(8)
    optimizer, metric = sgd(model), nn.Linear(2, 2)
    data = TensorDataset(torch.randn(40, 8), torch.randint(0, 2, (40,)))

    def collate(rows: list[Any]) -> Any:
        return norm(torch.stack([x for x, _ in rows])).detach(), torch.stack([y for _, y in rows])

    for x, y in DataLoader(data, batch_size=4, collate_fn=collate):
        prediction = model(x)
        (nn.CrossEntropyLoss()(prediction, y) + frozen(x).sum()).backward()
        optimizer.step()
        metric(prediction.detach())

    assert [bool({SLOT, METHOD} & set(module.__dict__)) for module in (model, frozen, norm, metric)] == [
        True,
        False,
        False,
        False,
    ]
    num_forwards = bytes(recording.session.pen.codes[:20_000]).count(3)
    assert len(recording.steps()) == 10
    assert num_forwards == 10 + 2  # the metric's, until the third update shows that nobody trains it


def test_a_gan_with_two_optimizers_is_a_step_a_batch(recording: Recording) -> None:
    generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
    first, second = sgd(critic), sgd(generator)
    for x, _ in loader_of(8):
        critic(x).sum().backward()
        critic(generator(torch.randn(4, 4)).detach()).sum().backward()
        first.step()
        critic(generator(torch.randn(4, 4))).sum().backward()
        second.step()

    steps = recording.steps()

    assert [step.num_optimizer_steps for step in steps] == [2] * 8
    assert [seen(step) for step in steps] == [ALL] * 8
    assert recording.builder.state.unsure == ""


def test_without_a_loader_a_step_is_an_update_of_the_same_optimizer(recording: Recording) -> None:
    generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
    first, second = sgd(critic), sgd(generator)
    for _ in range(8):
        critic(generator(torch.randn(4, 4)).detach()).sum().backward()
        first.step()
        critic(generator(torch.randn(4, 4))).sum().backward()
        second.step()

    steps = recording.steps()

    assert [step.num_optimizer_steps for step in steps] == [2] * 8
    assert [seen(step) for step in steps] == [ALL - {"input"}] * 8
    assert recording.builder.state.unsure == ""


def test_a_closure_is_run_inside_its_one_step(recording: Recording) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for x, y in loader_of(20):

        def closure() -> Any:
            optimizer.zero_grad()
            loss = criterion(model(x), y)  # noqa: B023  # called at once
            loss.backward()
            return loss

        optimizer.step(closure)

    steps = recording.steps()

    assert [step.num_optimizer_steps for step in steps] == [1] * 20
    assert [seen(step) for step in steps] == [ALL] * 20
    assert all(sum(ns or 0 for ns in step.phase_ns) == step.period_ns for step in steps)


@since(2, 1)
def test_an_optimizer_for_each_parameter_inside_backward_is_a_step_a_backward(recording: Recording) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for x, y in loader_of(20):
        criterion(model(x), y).backward()

    steps = recording.steps()

    assert [step.num_optimizer_steps for step in steps] == [4] * 20
    assert [seen(step) for step in steps] == [ALL] * 20
    assert recording.builder.state.unsure == ""


def test_a_scaler_that_skips_an_update_still_ends_its_step(recording: Recording) -> None:
    if not hasattr(torch.amp, "GradScaler"):
        pytest.skip("this torch scales on CUDA only")
    model, criterion = model_of(), nn.CrossEntropyLoss()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=4.0)
    for number, (x, y) in enumerate(loader_of(10)):
        loss = criterion(model(x), y)
        scaler.scale(loss * float("inf") if number in (3, 7) else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    steps = recording.steps()

    assert [step.num_optimizer_steps for step in steps] == [1, 1, 1, 0, 1, 1, 1, 0, 1, 1]
    assert "optimizer" not in seen(steps[3])
    assert recording.builder.state.unsure == ""


@since(2, 0)
def test_an_outer_update_over_inner_gradients_is_one_step(recording: Recording) -> None:
    model = nn.Linear(4, 1)
    optimizer = sgd(model)
    for _ in range(10):
        optimizer.zero_grad()
        for _ in range(2):
            weights = dict(model.named_parameters())
            loss = torch.func.functional_call(model, weights, (torch.randn(3, 4),)).sum()
            gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            fast = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients)}
            torch.func.functional_call(model, fast, (torch.randn(3, 4),)).pow(2).sum().backward()
        optimizer.step()

    assert len(recording.steps()) == 10
    assert recording.builder.state.unsure == ""


def test_an_update_made_by_hand_is_unsure_and_says_so(recording: Recording) -> None:
    model, criterion = model_of(), nn.CrossEntropyLoss()
    for x, y in loader_of(30):
        criterion(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None

    steps = recording.steps()

    assert [seen(step) for step in steps] == [ALL - {"optimizer"}] * 30
    assert "each of 30 backwards" in recording.builder.state.unsure


def test_a_long_run_without_updates_is_published_all_the_same(recording: Recording) -> None:
    model = model_of()
    for _ in range(300):
        model(torch.randn(2, 8)).sum().backward()

    assert recording.session.pen.ring.header[16] > 1000


def test_the_search_comes_off_after_three_updates(recording: Recording) -> None:
    place = SLOT if SLOT in vars(nn.Module) else "__call__"
    searching = vars(nn.Module)[place]
    train(2)
    assert vars(nn.Module)[place] is searching is not None
    train(3)

    assert vars(nn.Module)[place] is (None if place == SLOT else nn.Module._call_impl)


def test_a_second_training_in_the_same_process_has_its_own_model_seen(recording: Recording) -> None:
    train(10)
    train(10)

    steps = recording.steps()

    assert len(steps) == 20
    assert [seen(step) for step in steps[11:]] == [ALL] * 9


def test_training_in_a_thread_of_its_own_is_seen_from_its_second_step_on(recording: Recording) -> None:
    thread = threading.Thread(target=train, args=(10,))
    thread.start()
    thread.join()

    steps = recording.steps()

    assert len(steps) in (9, 10)
    assert [seen(step) for step in steps[1:]] == [ALL] * (len(steps) - 1)


def test_the_first_trace_step_ends_the_search_and_the_roots(recording: Recording) -> None:
    _, other = train(2)
    model, criterion = model_of(), nn.CrossEntropyLoss()
    optimizer = sgd(model)
    for x, y in loader_of(4):
        with trace_step(model):
            criterion(model(x) + other(x), y).backward()
            optimizer.step()
    model(x).sum().backward()
    optimizer.step()

    assert vars(nn.Module).get(SLOT) is None
    assert [bool({SLOT, METHOD} & set(one.__dict__)) for one in (model, other)] == [True, False]
    steps = recording.steps()
    assert [step.step for step in steps] == list(range(1, 7))
    assert not [message for message in recording.messages if isinstance(message, Fault)]
