"""Is the script's own terminal: opens a pty, starts the script on it, sizes it, and reaches who has its foreground."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import termios
from contextlib import suppress
from typing import Any, Final, Mapping, Optional, Sequence

from traceml.launch.face import is_same_terminal

_CHUNK: Final = 1 << 16
_MAX_READS: Final = 16  # a turn, before keys and signals have theirs
_MAX_UNREAD: Final = 4096
_LFLAG, _CC = 3, 6


class Pty:
    """A pty with the user's own modes; the script's end stays open here too, so that it never reads as closed."""

    def __init__(self, *, rows: int, columns: int, modes: Sequence[Any]) -> None:
        """Opens it.

        Raises:
            OSError: There is none to be had.
        """
        self.master, self._slave = os.openpty()
        os.set_blocking(self.master, False)
        self.process: Optional[subprocess.Popen[bytes]] = None
        try:
            termios.tcsetattr(self._slave, termios.TCSANOW, list(modes))
        except termios.error as error:
            self.close()
            raise OSError(*error.args) from None
        self.resize(rows, columns)

    def start(self, command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts the command in a session of its own, this pty its terminal.

        Descriptor 2 stays what it is where it is no terminal, or another one. What the shell gave us is inherited.

        Raises:
            OSError: The system refuses.
        """
        errors = self._slave if is_same_terminal(2, 1) else None
        try:
            self.process = subprocess.Popen(  # noqa: S603  # what the user asked for
                list(command),
                env=dict(environ),
                stdin=self._slave,
                stdout=self._slave,
                stderr=errors,
                close_fds=False,
                start_new_session=True,
                preexec_fn=_take_terminal,  # noqa: PLW1509  # no thread here, and one system call
            )
        except subprocess.SubprocessError as error:
            raise OSError(errno.ENOTTY, f"its terminal: {error}") from None
        return self.process

    def resize(self, rows: int, columns: int) -> None:
        """Its size; who has the foreground gets SIGWINCH."""
        with suppress(OSError):
            fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> tuple[bytes, bool]:
        """What the script printed since, up to some hundred KB, and whether there may be more at once."""
        parts: list[bytes] = []
        for _ in range(_MAX_READS):
            try:
                data = os.read(self.master, _CHUNK)
            except OSError:  # nothing there
                return b"".join(parts), False
            if not data:
                return b"".join(parts), False
            parts.append(data)
        return b"".join(parts), True

    def type(self, keys: bytes) -> int:
        """Gives keys to the script; how many bytes it took."""
        try:
            return os.write(self.master, keys)
        except OSError:  # its input is full
            return 0

    def unread(self) -> bytes:
        """What was typed and nobody has read; call it after the script's end."""
        try:
            modes = termios.tcgetattr(self._slave)
            modes[_LFLAG] &= ~(termios.ICANON | termios.ECHO)
            modes[_CC][termios.VMIN], modes[_CC][termios.VTIME] = 0, 0
            termios.tcsetattr(self._slave, termios.TCSANOW, modes)
            return os.read(self._slave, _MAX_UNREAD)
        except (OSError, termios.error):
            return b""

    def character(self, name: int) -> Optional[bytes]:
        """The key that ends (VINTR), quits (VQUIT) or stops (VSUSP) the foreground; None while keys mean nothing."""
        try:
            modes = termios.tcgetattr(self._slave)
        except termios.error:
            return None
        key = modes[_CC][name]
        assert isinstance(key, bytes)
        return key if modes[_LFLAG] & termios.ISIG and key != b"\0" else None

    @property
    def is_cooked(self) -> bool:
        """Whether the script reads lines, as at its start, and no single keys."""
        try:
            return bool(termios.tcgetattr(self._slave)[_LFLAG] & termios.ICANON)
        except termios.error:
            return True

    def send(self, signum: int) -> None:
        """Sends a signal to who has the foreground, and to the script's own group."""
        assert self.process is not None
        groups = {self.process.pid}
        with suppress(OSError):
            groups.add(os.tcgetpgrp(self.master))
        for group in groups - {0}:
            with suppress(OSError):  # it is gone
                os.killpg(group, signum)

    def close(self) -> None:
        """Closes both ends."""
        os.close(self._slave)
        os.close(self.master)


def _take_terminal() -> None:
    """In the child, a session leader by now, its descriptor 0 the pty."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
