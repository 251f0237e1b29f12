"""Passes the script's output through, byte for byte, and keeps a copy of its first 4 and last 28 MB."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Final, Iterable

if TYPE_CHECKING:
    from pathlib import Path

HEAD_BYTES: Final = 4 << 20
TAIL_BYTES: Final = 28 << 20
_SLACK_BYTES: Final = 4 << 20
_CHUNK: Final = 1 << 16
_CUT: Final = b"\n[TraceML: %d bytes left out here]\n"


class Log:
    """A file that keeps the first 4 MB and the last 28 MB of what is written; between compactions up to 36 MB.

    A disk without room ends the copy, never the script's output: `note` says so.
    """

    def __init__(self, path: Path, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.note = ""
        self._path, self._head_bytes, self._tail_bytes = path, head_bytes, tail_bytes
        self._slack_bytes = min(_SLACK_BYTES, tail_bytes)
        self._num_left_out = 0
        self._cut_bytes = 0  # how long the line between head and tail is
        self._size = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)

    def write(self, data: bytes) -> None:
        """Adds to the copy."""
        if self.note:
            return
        try:
            _write_all(self._fd, data)
            self._size += len(data)
            if self._size > self._head_bytes + self._cut_bytes + self._tail_bytes + self._slack_bytes:
                self._compact()
        except OSError as error:
            self.note = f"TraceML: the copy of the output in '{self._path}' ends early ({error.strerror})."

    def close(self) -> None:
        """Cuts it to its final size."""
        if not self.note and self._size > self._head_bytes + self._cut_bytes + self._tail_bytes:
            try:
                self._compact()
            except OSError as error:
                self.note = f"TraceML: '{self._path}' is longer than it should be ({error.strerror})."
        os.close(self._fd)

    def _compact(self) -> None:
        head = os.pread(self._fd, self._head_bytes, 0)
        start = self._size - self._tail_bytes
        tail = os.pread(self._fd, self._tail_bytes, start)
        newline = tail.find(b"\n", 0, _CHUNK)  # the tail begins with a whole line where there is one
        tail = tail[newline + 1 :]
        self._num_left_out += start - self._head_bytes - self._cut_bytes + newline + 1
        cut = _CUT % self._num_left_out
        neighbour = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fd = os.open(neighbour, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            for part in (head, cut, tail):
                _write_all(fd, part)
            neighbour.replace(self._path)
        except OSError:
            os.close(fd)
            neighbour.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self._cut_bytes, self._size = fd, len(cut), len(head) + len(cut) + len(tail)


class Capture:
    """Two pipes between the script and our own stdout and stderr."""

    def __init__(self, log: Path) -> None:
        self._log = Log(log)
        out, self._out_writer = os.pipe()
        err, self._err_writer = os.pipe()
        self._targets = {out: 1, err: 2}

    @property
    def writers(self) -> tuple[int, int]:
        """The ends for the script's stdout and stderr."""
        return self._out_writer, self._err_writer

    @property
    def readers(self) -> tuple[int, ...]:
        """The ends we read."""
        return tuple(self._targets)

    @property
    def note(self) -> str:
        """What went wrong with the copy, for the user."""
        return self._log.note

    def started(self) -> None:
        """Closes our copies of the script's ends, so that its end is an end of file."""
        os.close(self._out_writer)
        os.close(self._err_writer)

    def pump(self, readable: Iterable[int]) -> None:
        """Hands on what has come; waits only where our own stdout or stderr does."""
        for fd in readable:
            data = os.read(fd, _CHUNK)
            target = self._targets.get(fd)
            if not data:
                os.close(fd)
                self._targets.pop(fd, None)
                continue
            self._log.write(data)
            if target is not None:
                self._hand_on(fd, target, data)

    def drain(self) -> None:
        """Hands on what the ended script left; a daemon of its that keeps the pipe is not waited for."""
        while self._targets:
            readable, _, _ = select.select(self.readers, [], [], 0)
            if not readable:
                return
            self.pump(readable)

    def close(self) -> None:
        """Closes pipes and copy."""
        for fd in self.readers:
            os.close(fd)
        self._targets.clear()
        self._log.close()

    def _hand_on(self, fd: int, target: int, data: bytes) -> None:
        try:
            _write_all(target, data)
        except OSError:
            # Our reader is gone (`| head`): so is the script's, from now on, as it would be without us.
            os.close(fd)
            self._targets.pop(fd, None)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
