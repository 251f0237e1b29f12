"""Knows a process's descendants, and ends those that outlive it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    import psutil

_POLITE_S = 2.0
_KILL_S = 1.0


class Tree:
    """The descendants a process was seen to have; a pid that another process took over is never touched."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, psutil.Process] = {}

    def look(self) -> None:
        """Adds the descendants of now: once the process is gone, they can no longer be told from others."""
        import psutil  # noqa: PLC0415  # 4 MB that only a run ended by SIGTERM needs

        try:
            for process in psutil.Process(self._pid).children(recursive=True):
                self._seen.setdefault(process.pid, process)
        except psutil.Error:
            pass  # it is gone: what was seen before counts

    def end(self) -> int:
        """Asks what is left to end (SIGTERM), then kills it.

        Returns:
            How many had been left over; it takes at most 3 s.
        """
        import psutil  # noqa: PLC0415  # likewise

        left = [process for process in self._seen.values() if process.is_running()]
        for process in left:
            _send(process.terminate)
        _, stubborn = psutil.wait_procs(left, timeout=_POLITE_S)
        for process in stubborn:
            _send(process.kill)
        psutil.wait_procs(stubborn, timeout=_KILL_S)
        return len(left)


def _send(act: Callable[[], None]) -> None:
    import psutil  # noqa: PLC0415  # likewise

    with suppress(psutil.Error):  # ended by itself
        act()
