"""Sees from outside that a process is stopped or traced: nothing in the training has to look."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

STOPPED: Final = "stopped"
TRACED: Final = "traced"
_STATES: Final = {b"T": STOPPED, b"t": TRACED}
_STATUSES: Final = {psutil.STATUS_STOPPED: STOPPED, psutil.STATUS_TRACING_STOP: TRACED}


def why_halted(pid: int, proc: Path = Path("/proc")) -> str:
    """Why a process stands still at this moment: "stopped" (SIGSTOP, Ctrl-Z), "traced" (gdb, strace), or nothing.

    A process that is traced and runs is "traced", too: its tracer takes its time at every system call or breakpoint.
    About 0.05 ms where there is a /proc.
    """
    try:
        state = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0]
        if state in _STATES:
            return _STATES[state]
        status = (proc / str(pid) / "status").read_bytes()
        tracer = status.partition(b"TracerPid:")[2].split(None, 1)[:1]
    except (OSError, IndexError):
        return "" if proc.is_dir() else _ask(pid)
    return TRACED if tracer not in ([], [b"0"]) else ""


def _ask(pid: int) -> str:
    try:
        return _STATUSES.get(psutil.Process(pid).status(), "")
    except psutil.Error:
        return ""
