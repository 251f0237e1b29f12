"""Holds the recorder to its words: what a user got wrong is said once, and never ends a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from tests.unit.recorder.conftest import Recording  # noqa: E402
from traceml.recorder import session  # noqa: E402
from traceml.recorder.pen import Pen  # noqa: E402
from traceml.recorder.step import count, trace_step  # noqa: E402
from traceml.schema.records import LoaderInfo, Watching  # noqa: E402

pytestmark = pytest.mark.torch


def test_what_cannot_be_counted_is_said_once_and_never_raised(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    for odd in (float("nan"), -1, "many", 2.5, float("inf"), 1 << 60):
        with trace_step():
            count(samples=odd)  # type: ignore[arg-type]
    with trace_step():
        count(samples=torch.tensor(3))

    steps = recording.steps()

    assert [step.num_samples for step in steps][-1] == 3
    assert capsys.readouterr().err.count("is not counted") == 1


def test_what_is_no_model_and_no_step_number_is_said_once(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(2, 2)
    for _ in range(3):
        with trace_step([model], None, step="a"):  # type: ignore[arg-type]
            model(torch.zeros(1, 2))

    steps = recording.steps()

    err = capsys.readouterr().err
    assert (err.count("is no model"), err.count("is not shown"), err.count("fault")) == (1, 1, 0)
    assert [step.user_step for step in steps] == [None] * 3


def test_a_loader_says_what_its_batches_come_from(recording: Recording) -> None:
    class Numbers(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]  # torch may be Any
        def __iter__(self) -> Any:
            return iter(torch.zeros(8, 2))

    class Mine(torch.utils.data.Sampler):  # type: ignore[misc, name-defined]  # likewise
        def __init__(self) -> None:
            """Older ones ask for the data."""

        def __iter__(self) -> Any:
            return iter(range(8))

        def __len__(self) -> int:
            return 8

    for loader in (DataLoader(Numbers(), batch_size=4), DataLoader(torch.zeros(8, 2), sampler=Mine(), batch_size=4)):
        list(loader)
    recording.steps()

    infos = [message for message in recording.messages if isinstance(message, LoaderInfo)]
    assert [(info.is_iterable, info.has_own_sampler) for info in infos] == [(True, False), (False, True)]


def test_what_a_hook_tells_while_it_is_installed_waits_until_it_is_known_whether_steps_are_inferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(pen: Pen) -> str:
        pen.tell(unseen={"sync": "subgroups"})  # as under a process group that was there before
        return ""

    monkeypatch.setitem(session._HOOKS, "gc", install)
    recording = Recording(tmp_path)
    recording.steps()

    first = next(message for message in recording.messages if isinstance(message, Watching))
    assert (first.infers, first.unseen.get("sync")) == (True, "subgroups")
