"""Samples the host as the run's cgroup allows it: cores, CPU, throttling, memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Optional

import psutil

from traceml.schema.records import HostSample

_NO_LIMIT: Final = 1 << 60  # v1 says "no limit" by a number near 2**63
_NS_PER_TICK: Final = 1e9 / (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
_IDLE: Final = (3, 4)  # idle and iowait in a cpu line of /proc/stat


@dataclass(frozen=True)
class Roots:
    """Where the system tells about itself; tests give a folder of their own."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")


class HostSampler:
    """The host within a cgroup, v1 or v2. What cannot be read is None.

    Args:
        roots: /proc and /sys/fs/cgroup.
        allowed: The cores of our affinity; None: ask.
        num_cores: Of the machine; None: ask.
    """

    def __init__(
        self, roots: Roots = Roots(), *, allowed: Optional[frozenset[int]] = None, num_cores: Optional[int] = None
    ) -> None:
        self._proc = roots.proc
        self._allowed = _affinity() if allowed is None else allowed
        self._machine_cores = num_cores or os.cpu_count() or 1
        self._cgroup = _Cgroup(roots)
        quota = self._cgroup.quota()
        affinity = float(len(self._allowed) or self._machine_cores)
        self.num_cores = affinity if quota is None else min(affinity, quota)
        self._is_narrow = self.num_cores < self._machine_cores
        self._has_quota = quota is not None and quota < affinity
        self._busy_ns: Optional[float] = None
        self._throttled: Optional[int] = None
        self._at_ns = 0

    @property
    def sees_everybody(self) -> bool:
        """Whether the machine's run queue is ours: not where others share the machine beyond our cores."""
        return not self._is_narrow

    def memory_limit_bytes(self) -> Optional[int]:
        """The cgroup's limit, or the machine's memory where that is less."""
        machine = self._meminfo("MemTotal")
        limit = self._cgroup.memory_limit()
        found = [value for value in (machine, limit) if value is not None]
        return min(found) if found else None

    def sample(self, at_ns: int, *, num_runnable: Optional[float] = None) -> HostSample:
        """One sample; CPU and throttling are since the last one.

        Args:
            at_ns: The records' clock.
            num_runnable: The run's own runnable threads, used where the machine's run queue is not ours alone.
        """
        return HostSample(
            at_ns=at_ns,
            num_cores=self.num_cores,
            cpu_percent=self._cpu_percent(at_ns),
            num_runnable=self._num_runnable() if self.sees_everybody else num_runnable,
            throttled=self._was_throttled(),
            memory_bytes=self._memory_bytes(),
            memory_limit_bytes=self.memory_limit_bytes(),
        )

    def _cpu_percent(self, at_ns: int) -> Optional[float]:
        busy_ns = self._cgroup.usage_ns() if self._has_quota else self._allowed_busy_ns()
        before_ns, passed_ns = self._busy_ns, at_ns - self._at_ns
        self._busy_ns, self._at_ns = busy_ns, at_ns
        if busy_ns is None or before_ns is None or passed_ns <= 0:
            return None
        return min(100.0, max(0.0, (busy_ns - before_ns) / passed_ns / self.num_cores * 100))

    def _allowed_busy_ns(self) -> Optional[float]:
        busy = 0.0
        seen = False
        for line in (_read(self._proc / "stat") or "").splitlines():
            name, *numbers = line.split()
            if not name.startswith("cpu") or name == "cpu" or not name[3:].isdigit():
                continue
            if not self._allowed or int(name[3:]) in self._allowed:
                ticks = [int(number) for number in numbers[:8]]
                busy += sum(tick for i, tick in enumerate(ticks) if i not in _IDLE) * _NS_PER_TICK
                seen = True
        if seen:
            return busy
        try:
            times = psutil.cpu_times()
        except (OSError, RuntimeError):
            return None
        return (times.user + times.system) * 1e9

    def _num_runnable(self) -> Optional[float]:
        for line in (_read(self._proc / "stat") or "").splitlines():
            if line.startswith("procs_running "):
                return max(0.0, float(line.split()[1]) - 1)  # we run, too, while we read this
        return None

    def _was_throttled(self) -> Optional[bool]:
        before, self._throttled = self._throttled, self._cgroup.num_throttled()
        if before is None or self._throttled is None:
            return None
        return self._throttled > before

    def _memory_bytes(self) -> Optional[int]:
        used = self._cgroup.memory_used()
        if used is not None and self._cgroup.memory_limit() is not None:
            return used
        total, available = self._meminfo("MemTotal"), self._meminfo("MemAvailable")
        if total is None or available is None:
            try:
                memory = psutil.virtual_memory()
            except (OSError, RuntimeError):
                return None
            return int(memory.total - memory.available)
        return total - available

    def _meminfo(self, name: str) -> Optional[int]:
        for line in (_read(self._proc / "meminfo") or "").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        return None


class _Cgroup:
    """The numbers of our own cgroup and those above it, of whichever version has the controller."""

    def __init__(self, roots: Roots) -> None:
        self._cpu = self._memory = self._usage = None  # type: Optional[tuple[Path, ...]]
        self._is_v2 = False
        for line in (_read(roots.proc / "self" / "cgroup") or "").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if number == "0" and not controllers:
                self._take_v2(roots.cgroup, path)
                continue
            names = controllers.split(",")
            if "cpu" in names:
                self._cpu = _chain(roots.cgroup / "cpu", path) or _chain(roots.cgroup / controllers, path)
            if "cpuacct" in names:
                self._usage = _chain(roots.cgroup / "cpuacct", path) or _chain(roots.cgroup / controllers, path)
            if "memory" in names:
                self._memory = _chain(roots.cgroup / "memory", path)
        if self._cpu or self._memory:
            self._is_v2 = False

    def _take_v2(self, root: Path, path: str) -> None:
        if not (root / "cgroup.controllers").is_file():
            return
        self._is_v2 = True
        self._v2 = _chain(root, path)

    def _levels(self, chain: Optional[tuple[Path, ...]]) -> tuple[Path, ...]:
        return self._v2 if self._is_v2 else (chain or ())

    def quota(self) -> Optional[float]:
        """Allowed cores, the least of all levels."""
        found = []
        for folder in self._levels(self._cpu):
            if self._is_v2:
                words = (_read(folder / "cpu.max") or "max").split()
                quota, period = words[0], words[1] if len(words) > 1 else "100000"
            else:
                quota = (_read(folder / "cpu.cfs_quota_us") or "-1").strip()
                period = (_read(folder / "cpu.cfs_period_us") or "100000").strip()
            if quota not in ("max", "-1") and int(period) > 0:
                found.append(int(quota) / int(period))
        return min(found) if found else None

    def usage_ns(self) -> Optional[float]:
        """CPU time of the cgroup so far."""
        for folder in self._levels(self._usage):
            if self._is_v2:
                usage = _field(folder / "cpu.stat", "usage_usec")
                return None if usage is None else usage * 1e3
            text = _read(folder / "cpuacct.usage")
            return None if text is None else float(text)
        return None

    def num_throttled(self) -> Optional[int]:
        """How often the quota has stopped us so far."""
        counts = [_field(folder / "cpu.stat", "nr_throttled") for folder in self._levels(self._cpu)]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def memory_limit(self) -> Optional[int]:
        """The least memory limit of all levels, None without one."""
        name = "memory.max" if self._is_v2 else "memory.limit_in_bytes"
        texts = [(_read(folder / name) or "max").strip() for folder in self._levels(self._memory)]
        limits = [int(text) for text in texts if text != "max"]
        return min((limit for limit in limits if limit < _NO_LIMIT), default=None)

    def memory_used(self) -> Optional[int]:
        """What the cgroup that has the limit holds, without the page cache that can be dropped at any time."""
        name, cache = (
            ("memory.current", "inactive_file") if self._is_v2 else ("memory.usage_in_bytes", "total_inactive_file")
        )
        for folder in self._levels(self._memory):
            text = _read(folder / name)
            if text is not None:
                return max(0, int(text) - (_field(folder / "memory.stat", cache) or 0))
        return None


def _chain(root: Path, path: str) -> tuple[Path, ...]:
    """The cgroup's folder and those above it up to the mount; just the mount where the path lies outside of it."""
    folder = root / path.strip("/")
    if ".." in path.split("/") or not folder.is_dir():
        return (root,) if root.is_dir() else ()
    found = [folder]
    while found[-1] != root:
        found.append(found[-1].parent)
    return tuple(found)


def _affinity() -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # macOS has none
        return frozenset()


def _field(path: Path, name: str) -> Optional[int]:
    for line in (_read(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None


def _read(path: Path) -> Optional[str]:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # eighteen a sample: half as dear as read_text
            return file.read().decode("ascii", errors="replace")
    except OSError:
        return None
