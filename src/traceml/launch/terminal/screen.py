"""Is the user's own terminal: its size and modes, what we write to it, and the keys that come from it."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import termios
import time
from contextlib import suppress
from typing import Any, Final, Optional

from traceml.launch.face import is_foreground, is_same_terminal

MAX_PENDING: Final = 1 << 16  # what waits for a slow terminal before the script has to wait
_KEYS: Final = 1024
_STUCK_S: Final = 10.0  # a terminal that takes nothing for so long is not waited for
_IFLAG, _OFLAG, _CFLAG, _LFLAG, _CC = 0, 1, 2, 3, 6


class Screen:
    """The terminal at descriptor 1, through a file of our own that never blocks: the shell's flags stay as they are."""

    def __init__(self) -> None:
        """Opens it.

        Raises:
            OSError: It cannot be asked for its modes.
        """
        self.fd = _open_again()
        try:
            self.modes: list[Any] = termios.tcgetattr(self.fd)
        except termios.error as error:
            os.close(self.fd)
            raise OSError(*error.args) from None
        self.is_gone = False
        self.has_keys = True  # until the terminal is closed
        self._pending = bytearray()

    @property
    def is_ours(self) -> bool:
        """Whether we are in its foreground."""
        return is_foreground(self.fd)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns; 0, 0 where it cannot tell."""
        try:
            found = os.get_terminal_size(self.fd)
        except OSError:
            return 0, 0
        return found.lines, found.columns

    def raw(self) -> None:
        """Every key comes as it is typed, every byte goes as it is: the script's own pty does the rest."""
        modes = list(self.modes)
        modes[_IFLAG] &= ~(
            termios.IGNBRK
            | termios.BRKINT
            | termios.PARMRK
            | termios.ISTRIP
            | termios.INLCR
            | termios.IGNCR
            | termios.ICRNL
            | termios.IXON
        )
        modes[_OFLAG] &= ~termios.OPOST
        modes[_CFLAG] = modes[_CFLAG] & ~(termios.CSIZE | termios.PARENB) | termios.CS8
        modes[_LFLAG] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
        modes[_CC] = [*modes[_CC]]
        modes[_CC][termios.VMIN], modes[_CC][termios.VTIME] = 1, 0
        self._set(modes)

    def cooked(self) -> None:
        """The modes that it had at first; what was typed ahead stays typed."""
        self._set(self.modes)

    def write(self, data: bytes) -> None:
        """Writes what it takes at once; the rest waits for `send`."""
        if data and not self.is_gone:
            self._pending += data
            self.send()

    @property
    def num_pending(self) -> int:
        """How many bytes wait."""
        return len(self._pending)

    def send(self) -> None:
        """Goes on writing; call it when the terminal is writable."""
        while self._pending and not self.is_gone:
            try:
                del self._pending[: os.write(self.fd, self._pending)]
            except BlockingIOError:
                return
            except OSError:
                self.is_gone = True  # closed: what is printed from now on goes to the log alone
        if self.is_gone:
            self._pending.clear()

    def send_all(self) -> None:
        """Writes what waits, as long as the terminal takes some of it."""
        until = time.monotonic() + _STUCK_S
        while self._pending and not self.is_gone and time.monotonic() < until:
            before = len(self._pending)
            select.select([], [self.fd], [], 0.1)
            self.send()
            if len(self._pending) < before:
                until = time.monotonic() + _STUCK_S

    def keys(self) -> bytes:
        """What was typed; call it when the terminal is readable."""
        try:
            data = os.read(self.fd, _KEYS)
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EINTR:
                return b""
            data = b""
        self.has_keys = bool(data)
        return data

    def type_back(self, keys: bytes) -> None:
        """Puts keys back for whoever reads the terminal next; where the kernel allows it to nobody, they are lost."""
        with suppress(OSError):
            for key in keys:
                fcntl.ioctl(self.fd, termios.TIOCSTI, bytes([key]))

    def close(self) -> None:
        """Closes our file; the terminal stays."""
        os.close(self.fd)

    def _set(self, modes: list[Any]) -> None:
        if self.is_ours:  # else it would stop us, whoever has the terminal now
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(self.fd, termios.TCSANOW, modes)


def _open_again() -> int:
    flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    fd: Optional[int] = None
    try:
        fd = os.open(os.ttyname(1), flags)
    except OSError:  # in another mount namespace it has no name
        return os.dup(1)
    if not is_same_terminal(fd, 1):
        os.close(fd)
        return os.dup(1)
    return fd
