"""Is the terminal in which a person runs `traceml`: a pty whose bytes are drawn by pyte, with its scroll-back."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import pyte

from tests.processes import running

PATIENCE_S = 20.0
#: What a person's shell says of the terminal; no CI, whoever runs this test.
SHELL = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
_UNSET = ("CI", "NO_COLOR", "COLORTERM", "COLORFGBG", "COLUMNS", "LINES")


def environment(**more: str) -> dict[str, str]:
    """What `traceml` finds in the shell."""
    found = running.environment(**{**SHELL, **more})
    return {name: value for name, value in found.items() if name not in _UNSET or name in more}


class _Answering(pyte.HistoryScreen):
    """A screen that answers, as terminals do, where the cursor is."""

    def __init__(self, columns: int, rows: int, answer: Callable[[bytes], None]) -> None:
        super().__init__(columns, rows, history=100_000)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data.encode())


class Terminal:
    """A terminal of some size, in which one command runs as its session's leader and foreground.

    Args:
        command: What was typed.
        cwd: Where.
        rows: Its size.
        columns: Likewise.
        environ: None: `environment()`.
        streams: Where 0, 1 or 2 go instead of the terminal, as the shell's `<`, `|` and `2>` would.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        rows: int = 24,
        columns: int = 80,
        environ: Optional[Mapping[str, str]] = None,
        streams: Optional[Mapping[int, Any]] = None,
    ) -> None:
        self.master, slave = os.openpty()
        self.screen = _Answering(columns, rows, self.type)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._set_size(slave, rows, columns)
        self.modes_before = termios.tcgetattr(slave)
        given = {0: slave, 1: slave, 2: slave, **(streams or {})}
        self.process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(environment() if environ is None else environ),
            stdin=given[0],
            stdout=given[1],
            stderr=given[2],
            start_new_session=True,
            preexec_fn=lambda: _take(slave),  # noqa: PLW1509  # one system call
        )
        self.slave = slave
        self.is_closed = False

    def type(self, keys: bytes) -> None:
        """Keys, as a person types them."""
        os.write(self.master, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Another size, as the window's frame is drawn."""
        self.screen.resize(rows, columns)
        self._set_size(self.slave, rows, columns)

    def look(self, seconds: float = 0.0) -> None:
        """Draws what comes in that time."""
        deadline = time.monotonic() + seconds
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self.master], [], [], left_s)[0]:
                return
            data = os.read(self.master, 1 << 16)
            self.raw += data
            self._stream.feed(data)

    def until(self, condition: Callable[[], object], *, patience_s: float = PATIENCE_S) -> bool:
        """Whether it comes true; the terminal is drawn meanwhile."""
        deadline = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.look(0.02)
        return True

    def wait_for(self, text: str, *, patience_s: float = PATIENCE_S) -> None:
        """Until a text stands somewhere, scroll-back and panel included."""
        if not self.until(lambda: text in self.everything, patience_s=patience_s):
            raise AssertionError(f"no {text!r} in:\n{self.everything}")

    def finish(self) -> int:
        """The exit code, 128+n as a shell has it for signal n; all that was written is drawn."""
        assert self.until(lambda: self.process.poll() is not None), self.everything
        self.look(0.05)
        code: int = self.process.returncode
        return 128 - code if code < 0 else code

    def close(self) -> None:
        """Closes the window; whoever does not end by that is killed in the end."""
        if self.is_closed:
            return
        self.is_closed = True
        os.close(self.slave)
        os.close(self.master)
        if not running.until(lambda: self.process.poll() is not None):
            self.process.kill()
            self.process.wait()

    @property
    def rows(self) -> list[str]:
        """What stands on the screen, without blanks at the ends."""
        found = self.screen
        return [_text(found.buffer[y], found.columns) for y in range(found.lines)]

    @property
    def history(self) -> list[str]:
        """What has scrolled out of it."""
        return [_text(line, self.screen.columns) for line in self.screen.history.top]

    @property
    def everything(self) -> str:
        """Scroll-back and screen."""
        return "\n".join([*self.history, *self.rows])

    @property
    def modes(self) -> list[Any]:
        """The terminal's own modes, as `stty` shows them."""
        return termios.tcgetattr(self.slave)

    @staticmethod
    def _set_size(fd: int, rows: int, columns: int) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _take(slave: int) -> None:
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def _text(line: Any, columns: int) -> str:
    # Not pyte's own display: it fails where half of a wide character was overwritten.
    return "".join(line[x].data for x in range(columns)).rstrip()


def traceml(*words: str) -> list[str]:
    """`traceml run WORDS`."""
    return [*running.COMMAND, "run", *words]
