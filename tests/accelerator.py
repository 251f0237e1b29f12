"""Stands in for an accelerator: queues that work off by a clock of their own, events, graph capture, an allocator.

A script on it is exact: `host(ms)` lets the host's clock advance, `launch(ms)` queues work for the device, `wait()` is
the script's own synchronise. What the recorder must never do is noted in `broken`, and the tests look there.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Iterator, Sequence

from traceml.recorder.accelerator import Machine

MB = 1 << 20


class Stream:
    """A queue of a device; `busy_until` is when all that was queued is done, in seconds of the host's clock."""

    def __init__(self, accelerator: Accelerator, device: int) -> None:
        self.accelerator, self.device = accelerator, device
        self.busy_until = 0.0
        self.is_capturing = False

    def launch(self, ms: float) -> None:
        self.busy_until = max(self.busy_until, self.accelerator.now_s) + ms / 1e3


class Event:
    """As torch.cuda.Event: bound to the device of its first record, moved by every further one."""

    def __init__(self, accelerator: Accelerator, *, enable_timing: bool = True) -> None:
        self._accelerator, self._timing = accelerator, enable_timing
        self.stream: Stream | None = None
        self.done_s: float | None = None
        accelerator.num_events += 1

    def record(self, stream: Stream) -> None:
        self._accelerator.may("record")
        if self.stream is not None and self.stream.device != stream.device:
            raise RuntimeError("Event device does not match recording stream's device")
        self.stream = stream
        self.done_s = float("inf") if self._accelerator.hangs else max(stream.busy_until, self._accelerator.now_s)
        self._accelerator.num_records += 1

    def query(self) -> bool:
        self._accelerator.may("query")
        self._accelerator.num_queries += 1
        return self.done_s is None or self.done_s <= self._accelerator.now_s

    def elapsed_time(self, end: Event) -> float:
        self._accelerator.may("elapsed_time")
        if self._accelerator.elapsed_error is not None:
            raise self._accelerator.elapsed_error
        if not (self._timing and end._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.done_s is None or end.done_s is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("device not ready")
        assert self.stream is not None
        assert end.stream is not None
        if self.stream.device != end.stream.device:
            raise RuntimeError("invalid resource handle")
        return (end.done_s - self.done_s) * 1e3

    def synchronize(self) -> None:
        self._accelerator.broken.append("synchronize")

    def wait(self, _stream: Any = None) -> None:
        self._accelerator.broken.append("wait")


class Counters:
    """The allocator, behind the names that torch's own readers call. Everybody may read and reset."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._held: dict[int, dict[str, list[int]]] = {}  # device: counter: current, peak
        self.num_reads = self.num_ooms = self.num_retries = 0
        self.capacity = 100 * MB
        self.observers: list[Callable[[int, int, int, int], None]] = []

    def add(self, name: str, device: int, size: int) -> None:
        held = self._held.setdefault(device, {}).setdefault(name, [0, 0])
        held[0] += size
        held[1] = max(held)

    def current(self, name: str, device: int) -> int:
        return self._held.get(device, {}).get(name, [0, 0])[0]

    def _cuda_memoryStats(self, device: int) -> dict[str, Any]:  # noqa: N802  # torch's name
        self.num_reads += 1
        found: dict[str, Any] = {"num_ooms": self.num_ooms, "num_alloc_retries": self.num_retries}
        for name in ("allocated_bytes", "reserved_bytes", "active_bytes"):
            current, peak = self._held.get(device, {}).get(name, (0, 0))
            found[name] = {pool: {"current": current, "peak": peak} for pool in ("all", "large_pool")}
        return found

    def _cuda_resetPeakMemoryStats(self, device: int) -> None:  # noqa: N802  # torch's name
        for held in self._held.get(device, {}).values():
            held[1] = held[0]


class Accelerator:
    """Devices, streams, events, captures and an allocator, on a host's clock that only the script advances."""

    kind = "meta"  # a device that this torch has, so that tensors can be moved there
    reads: Sequence[str] = ("_cuda_memoryStats", "_accelerator_getDeviceStats")
    resets: Sequence[str] = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")

    def __init__(self) -> None:
        self.now_s = time.perf_counter()
        self.in_use = True
        self.device = 0
        self.broken: list[str] = []  # what may never happen
        self.hangs = False  # events recorded now are never done
        self.sticky: Exception | None = None  # raised by whatever is asked of the device
        self.elapsed_error: Exception | None = None
        self.num_events = self.num_records = self.num_queries = 0
        self._streams: dict[int, Stream] = {}
        self._captures: list[Stream] = []
        self.counters: Any = Counters(self)
        self.Graph, self.graph = _make_capturing(self)
        self.capturing: Sequence[tuple[Any, str, str]] = (
            (self.graph, "__enter__", "__exit__"),
            (self.Graph, "capture_begin", "capture_end"),
        )

    def machine(self) -> Machine:
        """What a session is given."""
        return Machine(clock=lambda: self.now_s, accelerator=self)

    # -- as the recorder asks ------------------------------------------------------------------------------------------

    def is_in_use(self) -> bool:
        return self.in_use

    def current(self) -> int:
        return self.device

    def event(self) -> Event:
        return Event(self)

    def record(self, event: Event, device: int) -> object:
        stream = self.stream(device)
        event.record(stream)
        return id(stream)

    def is_capturing(self) -> bool:
        return self.stream(self.device).is_capturing

    def capacity_bytes(self, device: int) -> int:
        assert device >= 0
        return int(self.counters.capacity)

    def uuid(self, device: int) -> str:
        return f"0000-{device}"

    def watch_room(self, no_room: Callable[[int, int, int, int], None]) -> bool:
        self.counters.observers.append(no_room)
        return True

    def may(self, what: str) -> None:
        """Nothing may be recorded or asked while anything captures, in whatever thread: it would break the capture."""
        if self._captures:
            self.broken.append(f"{what} while capturing")
            raise RuntimeError("operation not permitted when stream is capturing")
        if self.sticky is not None:
            raise self.sticky

    # -- as the script does --------------------------------------------------------------------------------------------

    def stream(self, device: int) -> Stream:
        return self._streams.setdefault(device, Stream(self, device))

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[Stream]:
        """`with torch.cuda.stream(stream):`."""
        before = self.stream(stream.device)
        self._streams[stream.device] = stream
        try:
            yield stream
        finally:
            self._streams[stream.device] = before

    def host(self, ms: float) -> None:
        self.now_s += ms / 1e3

    def launch(self, ms: float) -> None:
        self.stream(self.device).launch(ms)

    def wait(self) -> None:
        self.now_s = max(self.now_s, *(stream.busy_until for stream in self._streams.values()), 0.0)

    def allocate(self, size: int, device: int | None = None) -> None:
        """Raises MemoryError where there is no room, after the observers were told; like torch, it tries twice."""
        at = self.device if device is None else device
        counters = self.counters
        held = counters.current("allocated_bytes", at)
        if held + size > counters.capacity:
            counters.num_retries += 1
            counters.num_ooms += 1
            for observer in counters.observers:
                observer(at, size, counters.capacity, counters.capacity - held)
            raise MemoryError(f"Tried to allocate {size} bytes")
        counters.add("allocated_bytes", at, size)
        counters.add("active_bytes", at, size)
        short = counters.current("allocated_bytes", at) - counters.current("reserved_bytes", at)
        if short > 0:
            counters.add("reserved_bytes", at, short)

    def free(self, size: int, device: int | None = None) -> None:
        at = self.device if device is None else device
        self.counters.add("allocated_bytes", at, -size)
        self.counters.add("active_bytes", at, -size)


def _make_capturing(accelerator: Accelerator) -> tuple[type[Any], type[Any]]:
    """A CUDAGraph and a `torch.cuda.graph` of this accelerator alone: the recorder wraps classes."""

    class Graph:
        def capture_begin(self) -> None:
            self.stream = accelerator.stream(accelerator.device)
            self.stream.is_capturing = True
            accelerator._captures.append(self.stream)

        def capture_end(self) -> None:
            accelerator._captures.remove(self.stream)
            self.stream.is_capturing = False

    class graph:  # noqa: N801  # as torch.cuda.graph
        def __init__(self, made: Graph) -> None:
            self._made = made

        def __enter__(self) -> None:
            self._made.capture_begin()

        def __exit__(self, *_: object) -> None:
            self._made.capture_end()

    return Graph, graph
