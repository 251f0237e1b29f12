"""Holds the recorder to its promises in a real training: what it sees, what it leaves behind, what it never breaks."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from tests.unit.recorder.conftest import Recording, seen  # noqa: E402
from traceml.recorder import pen  # noqa: E402
from traceml.recorder.hooks import forward  # noqa: E402
from traceml.recorder.hooks.forward import SLOT  # noqa: E402
from traceml.recorder.step import count, region, trace_step  # noqa: E402
from traceml.schema.model import ModelInfo  # noqa: E402
from traceml.schema.records import Fault, RankEnd, RegionName  # noqa: E402
from traceml.wire import edges  # noqa: E402

pytestmark = pytest.mark.torch
ALL = {"input", "forward", "backward", "optimizer"}


def parts(num_batches: int = 5, **options: Any) -> tuple[Any, Any, Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(num_batches * 4, 8), torch.randint(0, 2, (num_batches * 4,)))
    return model, nn.CrossEntropyLoss(), optimizer, DataLoader(data, batch_size=4, **options)


def train(model: Any, criterion: Any, optimizer: Any, loader: Any) -> list[float]:
    losses = []
    for x, y in loader:
        with trace_step(model):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses


def test_every_phase_of_a_plain_step_is_seen_once(recording: Recording) -> None:
    train(*parts())

    steps = recording.steps()

    assert [seen(step) for step in steps] == [ALL] * 5
    assert [(s.num_micro_batches, s.num_optimizer_steps, s.num_samples) for s in steps] == [(1, 1, 4)] * 5


def test_losses_are_what_they_are_without_us(tmp_path: Path) -> None:
    bare = train(*parts())

    recording = Recording(tmp_path)
    traced = train(*parts())
    recording.session.close("end")

    assert traced == bare


def test_everything_comes_off_again(tmp_path: Path) -> None:
    def names() -> list[Any]:
        from torch.optim import optimizer as optim
        from torch.utils.data import dataloader

        return [
            getattr(torch.autograd, "_engine_run_backward", None),
            torch.autograd.Variable._execution_engine,
            torch.save,
            torch.serialization.save,
            dataloader.DataLoader.__iter__,
            dataloader._BaseDataLoaderIter.__next__,
            len(getattr(optim, "_global_optimizer_pre_hooks", ())),
            len(getattr(optim, "_global_optimizer_post_hooks", ())),
            len(gc.callbacks),
            nn.Module.__call__,
            nn.Module.__dict__.get(SLOT),
            getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler).step,
        ]

    before = names()
    model, *rest = parts()
    recording = Recording(tmp_path)
    assert names() != before
    train(model, *rest)
    recording.session.close("shutdown")
    recording.session.close("shutdown")

    assert names() == before
    assert SLOT not in model.__dict__


def test_copies_and_files_of_a_traced_model_hold_nothing_of_ours(recording: Recording) -> None:
    model, criterion, optimizer, loader = parts()
    x, y = next(iter(loader))
    with trace_step(model):
        ema = copy.deepcopy(model)
        shallow = copy.copy(model)
        file = io.BytesIO()
        torch.save(model, file)
        pickled = pickle.dumps(model)
        criterion(model(x), y).backward()
        optimizer.step()

    assert SLOT not in ema.__dict__
    assert not torch.equal(ema(x), model(x))
    assert torch.equal(shallow(x), model(x))
    assert b"traceml" not in file.getvalue()
    assert b"traceml" not in pickled
    assert list(model.state_dict()) == list(ema.state_dict())
    assert "checkpoint" in seen(recording.steps()[0])


def test_a_model_is_freed_as_soon_as_its_owner_lets_go(recording: Recording) -> None:
    import weakref

    model, criterion, optimizer, loader = parts()
    train(model, criterion, optimizer, loader)
    gone = weakref.ref(model)
    gc.disable()
    try:
        del model, optimizer
        assert gone() is None
    finally:
        gc.enable()


def test_an_evaluation_between_steps_is_eval(recording: Recording) -> None:
    model, criterion, optimizer, loader = parts()
    _, _, _, validation = parts(num_batches=2)
    for x, y in loader:
        with trace_step(model):
            criterion(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for vx, _ in validation:
                model(vx)

    steps = recording.steps()

    assert [seen(step) for step in steps[1:]] == [ALL | {"eval"}] * 4
    assert [step.num_micro_batches for step in steps] == [1] * 5


def test_an_exception_passes_through_and_the_step_is_kept_as_failed(recording: Recording) -> None:
    class Broken(nn.Module):  # type: ignore[misc]  # torch is Any where it is not installed
        def forward(self, _: Any) -> Any:
            raise ValueError("mine")

    model, *rest = parts(num_batches=2)
    broken = Broken()
    with pytest.raises(ValueError, match="mine"), trace_step(broken):
        broken(torch.zeros(1))
    train(model, *rest)

    assert [step.failed_in for step in recording.steps()] == ["forward", None, None]


def test_break_and_continue_end_a_step_like_any_other(recording: Recording) -> None:
    model, criterion, optimizer, loader = parts(num_batches=6)
    for i, (x, y) in enumerate(loader):
        with trace_step(model):
            if i == 1:
                continue
            criterion(model(x), y).backward()
            if i == 4:
                break
            optimizer.step()

    steps = recording.steps()

    assert [step.failed_in for step in steps] == [None] * 5
    assert [step.num_optimizer_steps for step in steps] == [1, 0, 1, 1, 0]


def test_a_nested_step_is_one_step(recording: Recording) -> None:
    model, criterion, optimizer, loader = parts(num_batches=2)
    for x, y in loader:
        with trace_step(model), trace_step(model):
            criterion(model(x), y).backward()
            optimizer.step()

    assert len(recording.steps()) == 2


def test_a_loss_module_and_modules_inside_a_fetch_are_not_forward(recording: Recording) -> None:
    model, criterion, optimizer, _ = parts()
    norm = nn.LayerNorm(8)
    data = TensorDataset(torch.randn(12, 8), torch.randint(0, 2, (12,)))

    def collate(rows: list[Any]) -> Any:
        return norm(torch.stack([x for x, _ in rows])).detach(), torch.stack([y for _, y in rows])

    train(model, criterion, optimizer, DataLoader(data, batch_size=4, collate_fn=collate))
    codes = bytes(recording.session.pen.codes[:400])

    assert codes.count(3) == 3
    assert len(recording.steps()) == 3


def test_two_models_and_two_optimizers_are_one_step(recording: Recording) -> None:
    generator, discriminator = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (generator, discriminator)]
    for _ in range(3):
        with trace_step(generator, discriminator):
            discriminator(generator(torch.randn(2, 4)).detach()).sum().backward()
            optimizers[1].step()
            discriminator(generator(torch.randn(2, 4))).sum().backward()
            optimizers[0].step()

    steps = recording.steps()

    assert [step.num_optimizer_steps for step in steps] == [2, 2, 2]
    assert "input" not in seen(steps[0])


def test_the_models_are_told_once_by_class_and_size_without_their_wrappers(recording: Recording) -> None:
    model, critic = nn.Linear(8, 2), nn.Linear(4, 2)
    for _ in range(3):
        with trace_step(nn.DataParallel(model), critic):
            model(torch.ones(1, 8))

    recording.steps()
    told = [message for message in recording.messages if isinstance(message, ModelInfo) and message.name == "Linear"]

    assert told == [ModelInfo("Linear", 18), ModelInfo("Linear", 10)]


def test_regions_are_named_and_at_most_sixteen(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    with trace_step():
        for number in range(18):
            with region(f"part {number}"):
                pass

    steps = recording.steps()

    assert len(steps[0].region_ns) == 16
    assert [m.name for m in recording.messages if isinstance(m, RegionName)][:2] == ["part 0", "part 1"]
    assert capsys.readouterr().err.count("at most 16") == 1


def test_what_is_counted_by_hand_is_in_the_record(recording: Recording) -> None:
    for _ in range(3):
        with trace_step(step=40):
            count(samples=7, tokens=100)

    steps = recording.steps()

    assert [(s.num_samples, s.num_tokens, s.user_step) for s in steps] == [(7, 100, 40)] * 3


def test_tokens_are_read_off_input_ids(recording: Recording) -> None:
    rows = [{"input_ids": torch.zeros(10, dtype=torch.long)} for _ in range(8)]
    for _batch in DataLoader(rows, batch_size=4):
        with trace_step():
            torch.ones(1, requires_grad=True).sum().backward()

    assert [(s.num_samples, s.num_tokens) for s in recording.steps()] == [(4, 40), (4, 40)]


def test_workers_write_nothing_into_their_parents_ring(recording: Recording) -> None:
    model, criterion, optimizer, loader = parts(num_batches=6, num_workers=2)
    train(model, criterion, optimizer, loader)

    steps = recording.steps()

    assert [step.num_micro_batches for step in steps] == [1] * 6
    assert len({message for message in recording.messages if isinstance(message, RankEnd)}) == 1


def test_another_threads_work_is_not_the_training_threads(recording: Recording) -> None:
    model, other = parts()[0], parts()[3]
    thread = threading.Thread(target=lambda: list(other))
    with trace_step(model):
        thread.start()
        thread.join()

    assert seen(recording.steps()[0]) == set()


def test_training_in_a_thread_of_its_own_is_recorded(recording: Recording) -> None:
    thread = threading.Thread(target=train, args=parts())
    thread.start()
    thread.join()

    assert len(recording.steps()) == 5


def test_after_max_steps_everything_is_off_and_training_goes_on(tmp_path: Path) -> None:
    recording = Recording(tmp_path, max_steps=3)
    losses = train(*parts(num_batches=8))

    steps = recording.steps()

    assert (len(losses), len(steps)) == (8, 3)
    assert [m.how for m in recording.messages if isinstance(m, RankEnd)] == ["trace-max-steps"]
    assert not recording.session.pen.guard.hooks


def test_a_fault_in_a_hook_is_counted_and_the_third_takes_it_off(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def __setitem__(self, key: int, value: int) -> None:
            if value == 3:  # the forward's edge
                raise RuntimeError("no room")
            recording.session.pen.ring.codes[key] = value

        def __getitem__(self, key: slice) -> memoryview:
            return recording.session.pen.ring.codes[key]

    bare = train(*parts(num_batches=8))
    recording.session.pen.codes = Broken()  # type: ignore[assignment]
    forward.install(recording.session.pen)  # the hook closes over the column it writes

    losses = train(*parts(num_batches=8))
    steps = recording.steps()

    faults = [message for message in recording.messages if isinstance(message, Fault)]
    assert losses == bare
    assert [(fault.hook, fault.num_times, fault.is_off) for fault in faults] == [
        ("forward", 1, False),
        ("forward", 2, False),
        ("forward", 3, True),
    ]
    assert len(steps) == 16
    assert capsys.readouterr().err.count("\n") == 1


def test_steps_without_a_session_are_nothing_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    from traceml.recorder import step

    step.begin_session(None, "trace_step() without init()")
    losses = train(*parts())

    assert len(losses) == 5
    assert capsys.readouterr().err.count("without init()") == 1


def test_a_long_recording_seals_and_numbers_its_steps(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pen, "HOUSE_S", 0.0002)
    for _ in range(3000):
        with trace_step():
            pass

    steps = recording.steps()

    assert [step.step for step in steps] == list(range(1, 3001))
    codes = bytes(recording.session.pen.ring.codes)
    assert codes.count(edges.STEP_NUMBER) > 3
    assert recording.session.pen.ring.path.stat().st_size < 6 << 20
