"""Shows by which signs a training is noticed, and that waiting for them changes nothing."""

from __future__ import annotations

import pickle
from typing import Iterator

import pytest

torch = pytest.importorskip("torch")

from traceml.recorder import signs, step  # noqa: E402  # needs torch

PLACES = tuple(
    (owner, name)
    for owner, names in (
        (torch.autograd, ("_engine_run_backward", "backward")),
        (torch.optim.Optimizer, ("_patch_step_function", "_hook_for_profile")),
    )
    for name in names
    if hasattr(owner, name)
)


@pytest.fixture
def seen() -> Iterator[list[bool]]:
    found: list[bool] = []
    signs.arm(on_sign=found.append)
    yield found
    signs.disarm()


def optimizer() -> object:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


def test_an_optimizer_is_a_sign_but_no_step(seen: list[bool]) -> None:
    made = optimizer()
    optimizer()

    assert seen == [False]
    assert pickle.loads(pickle.dumps(made)).param_groups[0]["lr"] == 0.1


def test_a_backward_is_a_step_and_computes_what_it_would(seen: list[bool]) -> None:
    weight = torch.ones(2, requires_grad=True)
    (weight * 3).sum().backward()
    (weight * 3).sum().backward()

    assert seen == [True]
    assert weight.grad.tolist() == [6.0, 6.0]


def test_a_trace_step_is_a_step(seen: list[bool]) -> None:
    with step.trace_step():
        pass

    assert seen == [True]


def test_models_loaders_and_evaluation_are_no_signs(seen: list[bool]) -> None:
    model = torch.nn.Linear(2, 2)
    for batch in torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2):
        model(batch)

    assert seen == []


def test_after_a_sign_or_disarming_everything_is_as_before() -> None:
    before = [getattr(owner, name) for owner, name in PLACES]
    signs.arm(on_sign=lambda _: None)
    optimizer()
    signs.arm(on_sign=lambda _: None)
    signs.disarm()

    assert [getattr(owner, name) for owner, name in PLACES] == before
    assert step.on_first is None


def test_a_fault_of_ours_at_a_sign_is_one_line_and_the_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_is_step: bool) -> None:
        raise OSError("no room")

    signs.arm(on_sign=broken)

    assert optimizer() is not None
    assert capsys.readouterr().err == "TraceML: this process is not recorded: OSError: no room\n"


def test_a_loader_worker_shows_no_signs(seen: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils.data._utils.worker._worker_info", object())
    optimizer()

    assert seen == []
