"""Speaks to the accelerators that have events: CUDA, and ROCm under the same name. Never initialises one, never waits.

What the recorder may ask of a device stands in the Protocols; a stand-in for tests answers the same questions.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Final, Optional, Protocol, Sequence

NO_ACCELERATOR: Final = "no accelerator in use"
HOST_ONLY: Final = "MPS and XPU use the host clock"
_MAX_STREAMS: Final = 64

#: What an allocator tells when it has no room: device, bytes asked for, bytes of the device, bytes free on it.
NoRoom = Callable[[int, int, int, int], None]


class Event(Protocol):
    """A mark in a stream's queue. Recorded again it answers for the new place only."""

    def query(self) -> bool:
        """Whether the device has passed it; True when it was never recorded. Never waits."""
        ...

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this event to `end`, both done and of one device; negative when `end` was earlier."""
        ...


class Accelerator(Protocol):
    """A kind of device with events, and an allocator with counters."""

    kind: str  # as in `torch.device.type`
    #: Classes whose methods open and close the capture of a graph: class, opening, closing.
    capturing: Sequence[tuple[Any, str, str]]
    #: Where the allocator's counters are read and their peaks reset, by everybody: owner and names.
    counters: Any
    reads: Sequence[str]
    resets: Sequence[str]

    def is_in_use(self) -> bool:
        """Whether the process uses it by now; asking must not begin that."""
        ...

    def current(self) -> int:
        """The index of this thread's current device."""
        ...

    def event(self) -> Any:
        """A new event, that can time."""
        ...

    def record(self, event: Any, device: int) -> object:
        """Puts an event into the queue of the device's current stream; returns what tells that stream from others."""
        ...

    def is_capturing(self) -> bool:
        """Whether the current stream captures a graph, so that nothing may be recorded or asked."""
        ...

    def capacity_bytes(self, device: int) -> int:
        """The memory of a device."""
        ...

    def uuid(self, device: int) -> str:
        """The device's own name in the world, without a kind before it; empty where this torch does not tell."""
        ...

    def watch_room(self, no_room: NoRoom) -> bool:
        """Has the allocator call `no_room` whenever it has no room, from now on for good; whether it can."""
        ...


@dataclass(frozen=True)
class Machine:
    """What a session finds: the clock of its edges, in seconds, and what it watches once it is in use.

    Without an accelerator of its own it is the one that this torch was built for.
    """

    clock: Callable[[], float] = time.perf_counter
    accelerator: Optional[Accelerator] = None


class Cuda:
    """Torch's CUDA devices, by the same C functions that `torch.cuda` calls."""

    kind = "cuda"
    reads: Sequence[str] = ("_cuda_memoryStats", "_accelerator_getDeviceStats")
    resets: Sequence[str] = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda
        self.counters: Any = torch._C  # noqa: SLF001  # where all of torch.cuda's readers of memory end
        self.is_in_use: Callable[[], bool] = torch.cuda.is_initialized
        self.current: Callable[[], int] = torch._C._cuda_getDevice  # noqa: SLF001  # current_device() less its start-up
        self.is_capturing: Callable[[], bool] = getattr(torch._C, "_cuda_isCurrentStreamCapturing", _never)  # noqa: SLF001
        self._stream_of: Callable[[int], Any] = torch._C._cuda_getCurrentStream  # noqa: SLF001
        self._record: Callable[[Any, Any], None] = torch._C._CudaEventBase.record  # noqa: SLF001
        self._streams: dict[Any, Any] = {}
        graph, capture = getattr(torch.cuda, "graph", None), getattr(torch.cuda, "CUDAGraph", None)
        found = ((graph, "__enter__", "__exit__"), (capture, "capture_begin", "capture_end"))
        self.capturing: Sequence[tuple[Any, str, str]] = tuple(place for place in found if place[0] is not None)

    def event(self) -> Any:
        """A new event; the driver makes its own at the first record."""
        return self._cuda.Event(enable_timing=True)

    def record(self, event: Any, device: int) -> object:
        """As `event.record()` for the current stream of `device`, without building a Stream each time."""
        key = self._stream_of(device)
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= _MAX_STREAMS:
                self._streams.clear()
            stream = self._streams[key] = self._cuda.current_stream(device)
        self._record(event, stream)
        return key

    def capacity_bytes(self, device: int) -> int:
        """The whole memory of a device."""
        return int(self._cuda.get_device_properties(device).total_memory)

    def uuid(self, device: int) -> str:
        """As the driver has it behind "GPU-"."""
        return str(getattr(self._cuda.get_device_properties(device), "uuid", ""))

    def watch_room(self, no_room: NoRoom) -> bool:
        """Attaches an observer of torch's; it cannot be detached again."""
        attach = getattr(self.counters, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            return False
        try:
            attach(no_room)
        except RuntimeError:  # the allocator of cudaMallocAsync takes none
            return False
        return True


def find_accelerator() -> Optional[Accelerator]:
    """The accelerator that this torch was built for; None when it has none with events."""
    torch = sys.modules["torch"]
    return Cuda(torch) if hasattr(torch._C, "_cuda_getDevice") else None  # noqa: SLF001  # not in builds without CUDA


def host_clock_note() -> str:
    """Why the host clock is all there is, as far as it is known before an accelerator is used."""
    torch = sys.modules["torch"]
    xpu, mps = getattr(torch, "xpu", None), getattr(torch.backends, "mps", None)
    is_xpu = xpu is not None and getattr(xpu, "is_initialized", _never)()
    return HOST_ONLY if is_xpu or (mps is not None and mps.is_available()) else NO_ACCELERATOR


def _never() -> bool:
    """This torch cannot say."""
    return False
