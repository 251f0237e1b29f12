"""Samples the ranks' processes from outside."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

import psutil

from traceml.schema.records import ProcessSample

_MAX_THREADS = 256


class Work(NamedTuple):
    """CPU in seconds, and bytes read from storage and written to it."""

    cpu_s: float
    io_bytes: int


class ProcessSampler:
    """One rank's process. CPU is measured from one sample to the next, so the first has none."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process: Optional[psutil.Process] = None
        self._cpu_s: Optional[float] = None
        self._at_ns = 0

    def sample(self, rank: int, at_ns: int) -> Optional[ProcessSample]:
        """What the process holds and did since the last sample; None when it is gone.

        Costs about 0.2 ms. What the system does not tell (io counters and the wait for a core on macOS) is None.
        """
        try:
            if self._process is None:
                self._process = psutil.Process(self.pid)
            with self._process.oneshot():
                times = self._process.cpu_times()
                rss = self._process.memory_info().rss or None  # 0: it is just ending, and has given all back
                num_threads = self._process.num_threads()
        except psutil.Error:
            return None
        cpu_s, passed_ns = times.user + times.system, at_ns - self._at_ns
        percent = None
        if self._cpu_s is not None and passed_ns > 0:
            percent = max(0.0, (cpu_s - self._cpu_s) / passed_ns * 1e11)
        self._cpu_s, self._at_ns = cpu_s, at_ns
        read_bytes, write_bytes = self._io()
        return ProcessSample(
            rank=rank,
            at_ns=at_ns,
            rss_bytes=rss,
            cpu_percent=percent,
            num_threads=num_threads,
            read_bytes=read_bytes,
            write_bytes=write_bytes,
            run_delay_ns=_run_delay_ns(self.pid),
        )

    def _io(self) -> tuple[Optional[int], Optional[int]]:
        assert self._process is not None
        counters = getattr(self._process, "io_counters", None)  # not on macOS
        if counters is None:
            return None, None
        try:
            found = counters()
        except (psutil.Error, OSError):
            return None, None
        return found.read_bytes, found.write_bytes


def _run_delay_ns(pid: int) -> Optional[int]:
    """How long a process's main thread has waited for a core so far; None where the kernel does not tell. 0.05 ms."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return None


def num_running_threads(pids: list[int]) -> Optional[float]:
    """How many threads of these processes run or wait for a core at this moment; at most 256 of each are looked at."""
    found: Optional[float] = None
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())[:_MAX_THREADS]
        except OSError:
            continue
        found = (found or 0.0) + sum(_is_running(task / "stat") for task in tasks)
    return found


def _is_running(path: Path) -> bool:
    try:
        return path.read_bytes().rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False


def work_below(pid: int) -> Work:
    """What the processes below this one have used so far; nothing where there are none.

    The CPU of those that have ended is in it where their parent has waited for them.
    """
    try:
        process = psutil.Process(pid)
        below = process.children(recursive=True)
        times = process.cpu_times()
    except psutil.Error:
        return Work(0.0, 0)
    cpu_s, io_bytes = times.children_user + times.children_system, 0
    for process in below:
        try:
            times = process.cpu_times()
            counters = process.io_counters() if hasattr(process, "io_counters") else None  # not on macOS
        except (psutil.Error, OSError):  # it has just gone, or is another user's
            continue
        cpu_s += times.user + times.system + times.children_user + times.children_system
        io_bytes += counters.read_bytes + counters.write_bytes if counters is not None else 0
    return Work(cpu_s, io_bytes)


def waits_for_disk(pid: int) -> bool:
    """Whether a process cannot be interrupted at this moment: it waits for its storage."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_DISK_SLEEP)
    except psutil.Error:
        return False
