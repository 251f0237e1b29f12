"""Catches the signals meant for the script, without undoing what was ignored at entry."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Final, Iterable, Optional

from traceml.launch.witness import Witness

if TYPE_CHECKING:
    from types import FrameType

#: What is passed on to the script. SIGTSTP and SIGCONT are not caught: they stop and continue the whole group.
PASSED_ON: Final = tuple(
    signum
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if (signum := getattr(signal, name, None)) is not None
)


class Signals:
    """While open, signals are noted instead of obeyed; `wait` sleeps until one comes.

    A signal that was ignored at entry (nohup) stays ignored, here and in the script. What is started while this is open
    gets the default dispositions back, as it would from a shell.
    """

    def __init__(self, more: Iterable[int] = (), *, farewell: Optional[tuple[int, bytes]] = None) -> None:
        """Catches what is meant for the script, and `more`; `farewell` is written to a terminal when we are killed."""
        self._wake, self._wakeup = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wakeup, False)
        self._before: dict[int, Any] = {}
        for signum in (*PASSED_ON, *more):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, _noted)
        # Even where it was ignored at entry: without it nobody could see the script's exit code.
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _noted)
        self._before_fd = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        self._caught = [signum for signum in self._before if signum != signal.SIGCHLD]
        self._witness = Witness((signum for signum in self._caught if signum in PASSED_ON), farewell=farewell)

    def wait(
        self, timeout_s: Optional[float], fds: Iterable[int] = (), writable_fds: Iterable[int] = ()
    ) -> tuple[list[int], set[int]]:
        """Sleeps until a signal comes, a descriptor is readable (or one that is to be writable is), or time is over.

        Returns:
            The signals (SIGCHLD not among them) in order, and the readable ones of `fds`.
        """
        readable, _, _ = select.select([self._wake, *fds], writable_fds, [], timeout_s)
        got = []
        if self._wake in readable:
            got = [signum for signum in os.read(self._wake, 512) if signum in self._caught]
        return got, set(readable) - {self._wake}

    def reached_the_group(self, signum: int) -> bool:
        """Whether the script got this signal, too, without us."""
        return self._witness.saw(signum)

    def close(self) -> None:
        """Puts everything back."""
        self._witness.close()
        signal.set_wakeup_fd(self._before_fd)
        for signum, handler in self._before.items():
            signal.signal(signum, handler if handler is not None else signal.SIG_DFL)
        os.close(self._wake)
        os.close(self._wakeup)


class Deadline:
    """A moment on the monotonic clock, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether that moment has passed."""
        return self.left_s <= 0


def _noted(signum: int, frame: Optional[FrameType]) -> None:
    """The number went into the wakeup pipe already."""
