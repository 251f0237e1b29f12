"""Holds the CUDA side to torch's own names and signatures, with a torch that is made of notes."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from traceml.recorder.accelerator import NO_ACCELERATOR, Cuda, find_accelerator, host_clock_note  # noqa: E402

pytestmark = pytest.mark.torch


class Notes:
    """A torch of which CUDA is a list of calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.stream: Any = (7, 0, 1)  # stream id, device, type
        self._C = SimpleNamespace(
            _cuda_getDevice=lambda: 2,
            _cuda_isCurrentStreamCapturing=lambda: False,
            _cuda_getCurrentStream=lambda device: (*self.stream, device),
            _CudaEventBase=SimpleNamespace(record=lambda event, stream: self.calls.append(("record", event, stream))),
        )
        self.cuda = SimpleNamespace(
            is_initialized=lambda: True,
            current_stream=self._current_stream,
            Event=lambda enable_timing: ("event", enable_timing),
            get_device_properties=lambda device: SimpleNamespace(total_memory=device * 1000),
        )

    def _current_stream(self, device: int) -> Any:
        self.calls.append(("current_stream", device))
        return ("Stream", device, self.stream)


def test_an_event_is_recorded_on_the_devices_current_stream_and_that_is_looked_up_once() -> None:
    notes = Notes()
    cuda = Cuda(notes)
    keys = [cuda.record(cuda.event(), 3) for _ in range(3)]
    notes.stream = (8, 0, 1)
    other = cuda.record(cuda.event(), 3)

    assert len(set(keys)) == 1
    assert other not in keys
    assert [call[0] for call in notes.calls] == ["current_stream", *["record"] * 3, "current_stream", "record"]
    assert notes.calls[1] == ("record", ("event", True), ("Stream", 3, (7, 0, 1)))


def test_a_process_that_makes_streams_without_end_keeps_few() -> None:
    notes = Notes()
    cuda = Cuda(notes)

    for number in range(1000):
        notes.stream = (number, 0, 1)
        cuda.record(cuda.event(), 0)

    assert len(cuda._streams) <= 64


def test_an_old_torch_without_graphs_or_observers_is_one_that_captures_nothing() -> None:
    notes = Notes()
    del notes._C._cuda_isCurrentStreamCapturing
    cuda = Cuda(notes)

    assert not cuda.is_capturing()
    assert list(cuda.capturing) == []
    assert not cuda.watch_room(lambda *_: None)


def test_an_allocator_that_takes_no_observer_is_one_that_cannot_tell() -> None:
    notes = Notes()

    def attach(_: Any) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support this")

    notes._C._cuda_attach_out_of_memory_observer = attach

    assert not Cuda(notes).watch_room(lambda *_: None)


def test_the_names_are_those_of_this_torch() -> None:
    """Without a GPU the functions are missing, but torch's own description of them is there."""
    described = (Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text(encoding="utf-8")
    names = (*Cuda.reads, *Cuda.resets, "_cuda_getDevice", "_cuda_getCurrentStream", "_cuda_isCurrentStreamCapturing")

    assert [name for name in names if f"def {name}(" not in described] == []
    event = described[described.index("class _CudaEventBase") :]
    assert re.search(r"def record\(self, stream: ", event[: event.index("\nclass ", 10)])
    assert {"__enter__", "__exit__"} <= set(vars(torch.cuda.graph))
    assert {"capture_begin", "capture_end"} <= set(vars(torch.cuda.CUDAGraph))


def test_a_torch_without_cuda_has_no_accelerator_and_says_so() -> None:
    if torch.version.cuda or torch.version.hip:
        pytest.skip("this torch was built with CUDA")

    assert find_accelerator() is None
    if not torch.backends.mps.is_available():
        assert host_clock_note() == NO_ACCELERATOR
