"""Holds the h2d hook to its promises: copies from the host to the device and no others, and graphs stay whole."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import traceml  # noqa: E402
from tests.accelerator import Accelerator  # noqa: E402
from tests.unit.recorder.conftest import Recording, seen  # noqa: E402
from tests.unit.recorder.device_training import told  # noqa: E402
from traceml.recorder.step import trace_step  # noqa: E402
from traceml.recorder.wraps import wrap_h2d  # noqa: E402
from traceml.schema.records import Fault, Watching  # noqa: E402
from traceml.wire import edges  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def device() -> Accelerator:
    return Accelerator()


@pytest.fixture
def recording(device: Accelerator, tmp_path: Path) -> Iterator[Recording]:
    """The stand-in's devices are torch's `meta`."""
    made = Recording(tmp_path, machine=device.machine())
    yield made
    made.session.close("end")


def copies(recording: Recording) -> int:
    found = told(recording)
    assert found.codes.count(edges.H2D) == found.codes.count(edges.H2D + edges.CLOSE)
    return found.codes.count(edges.H2D)


X = torch.ones(2)
ON = torch.empty(2, device="meta")


@pytest.mark.parametrize(
    "move",
    [
        lambda: X.to("meta"),
        lambda: X.to("meta:0"),
        lambda: X.to(torch.device("meta")),
        lambda: X.to(device="meta"),
        lambda: X.to("meta", torch.float64, non_blocking=True),
        lambda: X.to(ON),
        lambda: X.to(tensor=ON),
        lambda: ON.copy_(X),
        lambda: ON.copy_(X, non_blocking=True),
        lambda: nn.Parameter(X).to("meta"),
    ],
)
def test_a_copy_to_the_device_is_h2d(recording: Recording, move: Any) -> None:
    with trace_step():
        result = move()

    assert result.device.type == "meta"
    assert copies(recording) == 1


@pytest.mark.parametrize(
    "move",
    [
        lambda: X.to(torch.float64),
        lambda: X.to("cpu"),
        lambda: X.to(X),
        lambda: X.to(dtype=torch.float64),
        lambda: ON.to("meta"),
        lambda: ON.to(torch.float64),
        lambda: X.copy_(torch.zeros(2)),
        lambda: ON.copy_(torch.empty(2, device="meta")),
        lambda: nn.Linear(2, 2).to("meta"),
        lambda: nn.Linear(2, 2).to(ON),
    ],
)
def test_anything_else_is_none(recording: Recording, move: Any) -> None:
    with trace_step():
        move()

    assert copies(recording) == 0


def test_the_users_errors_are_the_users(recording: Recording) -> None:
    with pytest.raises(TypeError) as error, trace_step():
        X.to("meta", "nonsense")

    assert "recorder" not in "".join(str(entry.path) for entry in error.traceback[1:])
    assert copies(recording) == 1


def test_calling_cuda_is_h2d(recording: Recording) -> None:
    with pytest.raises((AssertionError, RuntimeError)), trace_step():
        X.cuda()  # this torch has none

    found = told(recording)

    assert found.codes.count(edges.H2D) == found.codes.count(edges.RAISED) == 1


def test_a_step_with_a_copy_has_the_phase_and_it_is_watched(recording: Recording) -> None:
    for _ in range(3):
        with trace_step():
            X.to("meta")

    steps = recording.steps()

    watched = [message for message in recording.messages if isinstance(message, Watching)][-1]
    assert "h2d" in watched.phases
    assert "h2d" in seen(steps[-1])


def test_another_threads_copies_are_not_this_ones(recording: Recording) -> None:
    thread = threading.Thread(target=lambda: X.to("meta"))
    with trace_step():
        thread.start()
        thread.join()

    assert copies(recording) == 0


def test_a_compiled_function_keeps_one_whole_graph(recording: Recording, nothing_compiled: None) -> None:
    def work(x: Any) -> Any:
        y = x.to("meta")
        z = torch.empty(2, device="meta")
        z.copy_(x)
        return y * 2 + z

    compiled = torch.compile(work, backend="eager", fullgraph=True)
    with trace_step():
        result = compiled(X)
    at = recording.session.pen.ring.codes[:65536].tolist().count(edges.H2D)
    with trace_step():
        compiled(X)

    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert result.device.type == "meta"
    assert graphs == 1
    assert at == 2  # what this backend's graph does when it runs; compiling it adds none
    assert copies(recording) == 4


def test_a_mode_of_the_users_sees_the_same_calls(recording: Recording) -> None:
    from torch.overrides import TorchFunctionMode

    class Seeing(TorchFunctionMode):  # type: ignore[misc]  # torch is Any where it is not installed
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(getattr(func, "__name__", "?"))
            return func(*args, **(kwargs or {}))

    with Seeing() as mode, trace_step():
        X.to("meta")
        ON.copy_(X)
        X.to(torch.float64)
    copies(recording)

    assert mode.names == ["to", "copy_", "to"]


def test_a_fault_of_ours_leaves_the_copy_as_it_is(
    device: Accelerator, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __setitem__(self, key: int, value: int) -> None:
            raise RuntimeError("no room")

    from traceml.recorder.hooks import h2d

    recording.session.pen.guard.remove(h2d.HOOK)
    with monkeypatch.context() as during:
        during.setattr(recording.session.pen, "codes", Broken())
        h2d.install(recording.session.pen, "meta")
    moved = [X.to("meta") for _ in range(8)]
    told(recording)

    faults = [message for message in recording.messages if isinstance(message, Fault) and message.hook == "h2d"]
    assert all(one.device.type == "meta" for one in moved)
    assert [fault.is_off for fault in faults] == [False, False, True]
    assert "to" not in torch.Tensor.__dict__


def test_without_an_accelerator_in_use_nothing_is_installed(device: Accelerator, tmp_path: Path) -> None:
    device.in_use = False
    made = Recording(tmp_path, machine=device.machine())

    with trace_step():
        is_there = "to" in torch.Tensor.__dict__
    made.session.close("end")

    assert not is_there


def test_it_is_installed_only_where_it_was_asked_for(device: Accelerator, tmp_path: Path) -> None:
    made = Recording(tmp_path, only=("forward",), machine=device.machine())
    is_there = "to" in torch.Tensor.__dict__
    made.steps()

    watched = [message for message in made.messages if isinstance(message, Watching)][-1]
    assert not is_there
    assert watched.unseen["h2d"] == "not asked for in init()"


def test_selective_takes_patch_h2d(device: Accelerator, tmp_path: Path) -> None:
    from traceml import api

    made = Recording(tmp_path, only=api._only({"mode": "selective", "patch_h2d": True}), machine=device.machine())
    with trace_step():
        X.to("meta")

    assert copies(made) == 1


# -- by hand -----------------------------------------------------------------------------------------------------------


class Nest:
    """A batch of another library's."""

    def __init__(self) -> None:
        self.x = X
        self.where = "cpu"

    def to(self, device: str) -> Nest:
        moved = Nest()
        moved.x, moved.where = self.x.to(device), device
        return moved


def test_a_batch_given_to_wrap_h2d_is_one_copy(recording: Recording) -> None:
    with trace_step():
        moved = wrap_h2d(Nest()).to("meta")

    assert (type(moved), moved.where, moved.x.device.type) == (Nest, "meta", "meta")
    assert copies(recording) == 1


def test_a_tensor_given_to_wrap_h2d_is_one_copy_and_a_tensor_again(recording: Recording) -> None:
    with trace_step():
        moved = wrap_h2d(X).to("meta")

    assert (type(moved), moved.device.type) == (torch.Tensor, "meta")
    assert copies(recording) == 1


def test_a_function_given_to_wrap_h2d_is_one_copy(recording: Recording) -> None:
    move = wrap_h2d(lambda batch: [x.to("meta") for x in batch])
    with trace_step():
        moved = move([X, X])

    assert [x.device.type for x in moved] == ["meta", "meta"]
    assert copies(recording) == 1


def test_what_is_wrapped_is_as_before_where_nothing_is_recorded() -> None:
    wrapped = traceml.wrap_h2d(Nest())

    assert isinstance(wrapped, Nest)
    assert wrapped.where == "cpu"
    assert wrapped.to("meta").where == "meta"


def test_by_hand_without_any_hook_the_phase_is_watched(device: Accelerator, tmp_path: Path) -> None:
    device.in_use = False
    made = Recording(tmp_path, only=(), machine=device.machine())
    with trace_step():
        wrap_h2d(Nest()).to("meta")
    steps = made.steps()

    assert "h2d" in seen(steps[0])
    assert "h2d" in [message for message in made.messages if isinstance(message, Watching)][-1].phases


@pytest.mark.parametrize("batch", [{"x": 1}, [1, 2], (3,), None, 7, "text"], ids=repr)
def test_what_can_neither_move_nor_be_called_is_given_back_and_that_is_said_once(
    recording: Recording, capfd: pytest.CaptureFixture[str], batch: Any
) -> None:
    assert wrap_h2d(batch) is batch
    assert wrap_h2d(batch) is batch
    assert capfd.readouterr().err.count(f"wrap_h2d() of a {type(batch).__name__} watches nothing") == 1


@pytest.mark.parametrize(
    "use",
    [
        torch.sum,
        lambda x: nn.functional.linear(x, torch.ones(2, 4)),
        nn.Linear(4, 2),
        lambda x: torch.stack([x, x]),
        lambda x: torch.cat((torch.ones(1, 4), x)),
        lambda x: torch.where(x > 0, x, -x),
        lambda x: torch.ones(3, 4).copy_(x),
        lambda x: torch.einsum("ij,ij->i", x, x),
    ],
)
def test_a_tensor_given_to_wrap_h2d_that_is_never_moved_computes_like_itself(recording: Recording, use: Any) -> None:
    batch = torch.arange(12.0).reshape(3, 4)

    assert torch.equal(use(wrap_h2d(batch)), use(batch))
