"""Knows which processes are gone: by pidfd where there is one, else by looking, and never fooled by a reused pid."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Final, Optional

import psutil

from traceml.settings import RUN_VARIABLE
from traceml.wire.ringfolder import RUN

#: `struct pidfd_info` of linux/pidfd.h, first version: mask, cgroup, eleven ids, exit status.
_INFO: Final = struct.Struct("=QQ11Ii")
_INFO_EXIT: Final = 1 << 3
_GET_INFO: Final = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_BEING_STARTED_S: Final = 2.0
_SLACK_S: Final = 2.0  # create_time is the boot time plus ticks: it wanders with the wall clock


@dataclass
class _Watched:
    process: Optional[psutil.Process]
    pidfd: Optional[int]
    gone_ns: Optional[int] = None
    was_gone: bool = False  # before we first looked


class Life:
    """Watches processes. A pidfd wakes `select` at once; without one a death is seen at the next `look`.

    Args:
        clock: The records' clock, ns.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._watched: dict[int, _Watched] = {}

    def watch(self, pid: int, *, born_before: Optional[float] = None) -> None:
        """Begins to watch a process.

        Args:
            pid: The process.
            born_before: A wall-clock moment (s) at which it lived: a process that started later is another one.
        """
        if pid in self._watched:
            return
        process = _find(pid, born_before)
        if process is None:
            self._watched[pid] = _Watched(None, None, self._clock(), was_gone=True)
            return
        self._watched[pid] = _Watched(process, _pidfd(pid))

    @property
    def fds(self) -> list[int]:
        """Descriptors that become readable when a process ends."""
        return [w.pidfd for w in self._watched.values() if w.pidfd is not None and w.gone_ns is None]

    def look(self) -> None:
        """Notes who has gone since the last look."""
        for watched in self._watched.values():
            if watched.gone_ns is None and _has_ended(watched):
                watched.gone_ns = self._clock()

    def is_gone(self, pid: int) -> bool:
        """Whether a watched process has ended; a zombie has."""
        return self._watched[pid].gone_ns is not None

    def gone_ns(self, pid: int) -> Optional[int]:
        """When it was seen to have gone; None: it lives, or was gone before anybody looked."""
        watched = self._watched[pid]
        return None if watched.was_gone else watched.gone_ns

    def wait_status(self, pid: int) -> Optional[int]:
        """How a process ended, as `os.waitstatus_to_exitcode` reads it; None where the kernel does not tell.

        Linux 6.15 and newer keep it for whoever holds a pidfd, once the parent has reaped the process.
        """
        pidfd = self._watched[pid].pidfd
        return None if pidfd is None else _kept_status(pidfd)

    def close(self) -> None:
        """Lets the descriptors go."""
        for watched in self._watched.values():
            if watched.pidfd is not None:
                os.close(watched.pidfd)
                watched.pidfd = None


class Orphans:
    """The processes of a run whose launcher was killed before it could say which process its script is."""

    def __init__(self, ring_dir: Path, life: Life) -> None:
        self._ring_dir, self._life = ring_dir, life
        self._pids: set[int] = set()
        self._known_from = time.monotonic() + _BEING_STARTED_S

    def are_there(self) -> bool:
        """Whether one of them lives, or may just be on its way: until it runs it has its parent's environment."""
        self._pids = {pid for pid in self._pids if not self._life.is_gone(pid)}
        if not self._pids:
            self._pids = processes_of(self._ring_dir)
            for pid in self._pids:
                self._life.watch(pid)
        return bool(self._pids) or time.monotonic() < self._known_from


def is_alive(pid: int, *, born_before: Optional[float] = None) -> bool:
    """Whether this process lives, and is not a later one with the same pid."""
    return _find(pid, born_before) is not None


def _find(pid: int, born_before: Optional[float]) -> Optional[psutil.Process]:
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        if born_before is not None and process.create_time() > born_before + _SLACK_S:
            return None
    except (psutil.Error, ValueError):
        return None
    return process


def _pidfd(pid: int) -> Optional[int]:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel, a sandbox, or it has just gone: then by looking
        return None


def processes_of(ring_dir: Path) -> set[int]:
    """The processes that were started with this run's folder in their environment, ourselves left out."""
    try:
        folder = os.fsdecode((ring_dir / RUN).read_bytes())
    except OSError:
        return set()
    found = set()
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == folder:
                found.add(process.pid)
        except psutil.Error:  # another user's, or just gone
            continue
    return found


def kernel_keeps_exit_status() -> bool:
    """Whether `wait_status` can tell anything on this kernel; asks about a child that has just ended."""
    if not hasattr(os, "pidfd_open"):
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    pidfd = _pidfd(pid)
    os.waitpid(pid, 0)
    if pidfd is None:
        return False
    try:
        return _kept_status(pidfd) is not None
    finally:
        os.close(pidfd)


def _kept_status(pidfd: int) -> Optional[int]:
    answer = bytearray(_INFO.size)
    struct.pack_into("=Q", answer, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, answer, True)
    except OSError:  # an older kernel
        return None
    mask, *_, status = _INFO.unpack(answer)
    return int(status) if mask & _INFO_EXIT else None


def _has_ended(watched: _Watched) -> bool:
    if watched.pidfd is not None:
        return bool(select.select([watched.pidfd], [], [], 0)[0])
    assert watched.process is not None
    try:
        return not watched.process.is_running() or watched.process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
