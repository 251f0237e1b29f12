"""Tells whether a signal reached our whole process group, or us alone."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import Any, Iterable, NoReturn, Optional

_PATIENCE_S = 0.15
_MAX_FD = 1 << 16
_WORD = b"."  # that all has ended well


class Witness:
    """A small process in our process group. Whatever it gets as well, the script has got, too.

    A Ctrl-C, a closed terminal or `kill -- -GROUP` reach the script without us; sent on, it would get them twice, and a
    second Ctrl-C ends the saving that the first one began. Which of both it was, a signal does not say.

    It lives no longer than we do: it waits at a pipe of ours. Where we are killed, it gives the terminal back for us.
    """

    def __init__(self, signums: Iterable[int], *, farewell: Optional[tuple[int, bytes]] = None) -> None:
        """Starts it; call before any thread and after the handlers are in place.

        Args:
            signums: What to watch for.
            farewell: Where to write, and what, when we end without a word.
        """
        numbers = tuple(signums)
        self._seen: list[int] = []
        self._seen_fd, seen_by_child = os.pipe()
        child_life, self._life_fd = os.pipe()
        # Blocked meanwhile: until it has its own wakeup descriptor, the child would write into ours.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            self._pid: Optional[int] = os.fork()
        except OSError:  # no process left for us: then the terminal's foreground decides
            self._pid = None
        if self._pid == 0:
            _watch(seen_by_child, child_life, numbers, before, farewell)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(seen_by_child)
        os.close(child_life)

    def saw(self, signum: int) -> bool:
        """Whether the whole group got this signal; waits at most 0.15 s for the answer."""
        if self._pid is None:
            return signum == signal.SIGINT and _owns_terminal()
        while signum not in self._seen:
            ready, _, _ = select.select([self._seen_fd], [], [], _PATIENCE_S)
            data = os.read(self._seen_fd, 64) if ready else b""
            if not data:
                return False
            self._seen.extend(data)
        self._seen.remove(signum)
        return True

    def close(self) -> None:
        """Ends it and waits for its end, which follows at once."""
        with suppress(OSError):  # it has gone already
            os.write(self._life_fd, _WORD)
        os.close(self._life_fd)
        os.close(self._seen_fd)
        if self._pid:
            with suppress(ChildProcessError):  # reaped with the orphans, as PID 1
                os.waitpid(self._pid, 0)


def _watch(
    seen: int, life: int, signums: tuple[int, ...], mask: set[Any], farewell: Optional[tuple[int, bytes]]
) -> NoReturn:
    """The witness's whole life; never returns."""
    try:
        os.set_blocking(seen, False)
        signal.set_wakeup_fd(seen, warn_on_full_buffer=False)  # the C handler itself writes the number
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for signum in signums:
            signal.signal(signum, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        keep = sorted((seen, life) if farewell is None else (seen, life, farewell[0]))
        for before, behind in zip([-1, *keep], [*keep, min(os.sysconf("SC_OPEN_MAX"), _MAX_FD)]):
            os.closerange(before + 1, behind)
        if not os.read(life, 1) and farewell is not None:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # the shell has the foreground again
            os.write(*farewell)
    finally:
        os._exit(0)


def _owns_terminal() -> bool:
    return any(_is_foreground(fd) for fd in (0, 1, 2))


def _is_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # no terminal
        return False
