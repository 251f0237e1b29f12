"""Samples the ranks' processes from outside."""

from __future__ import annotations

import os
import time
from typing import NamedTuple, Optional

import psutil

from traceml.schema.records import ProcessSample

_MAX_THREADS = 256
_MOST_BYTES = 2048  # of a file of one line
_TICK_NS = 20_000_000  # a process's start is known to a hundredth of a second


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

        Costs about 0.05 ms where there is a /proc. What the system does not tell (io counters and the wait for a core
        on macOS) is None.
        """
        try:
            if self._process is None:
                self._process = psutil.Process(self.pid)
            cpu_s, rss, num_threads = _read(self.pid) or _ask(self._process)
        except psutil.Error:
            return None
        passed_ns = at_ns - self._at_ns
        percent = None
        if self._cpu_s is not None and passed_ns > 0:
            percent = max(0.0, (cpu_s - self._cpu_s) / passed_ns * 1e11)
        self._cpu_s, self._at_ns = cpu_s, at_ns
        read_bytes, write_bytes = self._io()
        return ProcessSample(
            rank=rank,
            at_ns=at_ns,
            rss_bytes=rss or None,  # 0: it is just ending, and has given all back
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


def _read(pid: int) -> Optional[tuple[float, int, int]]:
    """A process's CPU in seconds, resident bytes and threads; None where its /proc cannot be read.

    As psutil's, from two files instead of three and at a third of its cost: each rank is asked every second.
    """
    try:
        stat = _bytes_of(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        resident = int(_bytes_of(f"/proc/{pid}/statm").split()[1])
        cpu_s = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        return cpu_s, resident * os.sysconf("SC_PAGE_SIZE"), int(stat[17])
    except (OSError, IndexError, ValueError):
        return None


def _bytes_of(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # each rank, each second
        return file.read(_MOST_BYTES)


def _ask(process: psutil.Process) -> tuple[float, int, int]:
    """The same, of a system without /proc; psutil's errors where it is gone."""
    with process.oneshot():
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss, process.num_threads()


def _run_delay_ns(pid: int) -> Optional[int]:
    """How long a process's main thread has waited for a core so far; None where the kernel does not tell. 0.05 ms."""
    try:
        return int(_bytes_of(f"/proc/{pid}/schedstat").split()[1])
    except (OSError, IndexError, ValueError):
        return None


def num_running_threads(pids: list[int]) -> Optional[float]:
    """How many threads of these processes run or wait for a core at this moment; at most 256 of each are looked at."""
    found: Optional[float] = None
    for pid in pids:
        try:
            tasks = os.listdir(f"/proc/{pid}/task")[:_MAX_THREADS]  # noqa: PTH208  # as paths they cost twice as much
        except OSError:
            continue
        found = (found or 0.0) + sum([_is_running(f"/proc/{pid}/task/{task}/stat") for task in tasks])
    return found


def _is_running(path: str) -> bool:
    try:
        return _bytes_of(path).rpartition(b")")[2].split(None, 1)[0] == b"R"
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


def has_started(pid: int, *, since_ns: int) -> bool:
    """Whether a process that this one has started since then, by `time.perf_counter_ns`, is there yet: it may sleep."""
    try:
        below = psutil.Process(pid).children()
    except psutil.Error:
        return False
    return any(_is_there(child) and _started_ns(child) >= since_ns - _TICK_NS for child in below)


def _is_there(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def _started_ns(process: psutil.Process) -> int:
    """When a process started; psutil's own moment is off by up to a second where there is a /proc."""
    try:
        ticks = int(_bytes_of(f"/proc/{process.pid}/stat").rpartition(b")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        age_s = time.time() - process.create_time()
    return time.perf_counter_ns() - round(age_s * 1e9)


def waits_for_disk(pid: int) -> bool:
    """Whether a process cannot be interrupted at this moment: it waits for its storage."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_DISK_SLEEP)
    except psutil.Error:
        return False
