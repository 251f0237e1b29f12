"""Passes the script's output through, byte for byte, and keeps a copy of its first 4 and last 28 MB."""

from __future__ import annotations

import os
import re
import select
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn, Optional

if TYPE_CHECKING:
    from pathlib import Path

HEAD_BYTES: Final = 4 << 20
TAIL_BYTES: Final = 28 << 20
_SLACK_BYTES: Final = 4 << 20
_CHUNK: Final = 1 << 16
_MAX_CUT: Final = 64
_CUT: Final = b"\n[TraceML: %d bytes left out here]\n"
_HAS_CUT: Final = re.compile(rb"\n\[TraceML: (\d+) bytes left out here\]\n")


def log_name(rank: int | str) -> str:
    """The file in the run folder that holds what a rank printed; a pattern for the files of several."""
    return f"rank-{rank}.log"


class Log:
    """A file that keeps the first 4 MB and the last 28 MB of what is written; between compactions up to 36 MB.

    A file that is there already is gone on with. A disk without room ends the copy, never the script's output: `note`
    says so.
    """

    def __init__(self, path: Path, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.note = ""
        self._path, self._head_bytes, self._tail_bytes = path, head_bytes, tail_bytes
        self._slack_bytes = min(_SLACK_BYTES, tail_bytes)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
        self._size = os.fstat(self._fd).st_size
        found = _HAS_CUT.match(os.pread(self._fd, _MAX_CUT, head_bytes))
        self._num_left_out = int(found[1]) if found is not None else 0
        self._cut_bytes = len(found[0]) if found is not None else 0  # how long the line between head and tail is

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

    def leave(self) -> None:
        """Another process goes on with it."""
        os.close(self._fd)

    def _compact(self) -> None:
        start = self._size - self._tail_bytes
        start += _line_at(self._fd, start)  # the tail begins with a whole line where there is one
        self._num_left_out += start - self._head_bytes - self._cut_bytes
        cut = _CUT % self._num_left_out
        neighbour = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fd = os.open(neighbour, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _copy(self._fd, 0, self._head_bytes, fd)
            _write_all(fd, cut)
            _copy(self._fd, start, self._size, fd)
            neighbour.replace(self._path)
        except OSError:
            os.close(fd)
            neighbour.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self._cut_bytes, self._size = fd, len(cut), os.fstat(fd).st_size


def shorten(path: Path, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
    """Cuts a log as `Log` does, in its place: other processes append to it. What they write meanwhile may get lost.

    Raises:
        OSError: It cannot be cut: it is as it was, or its tail is missing.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
    neighbour = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        size = os.fstat(fd).st_size
        found = _HAS_CUT.match(os.pread(fd, _MAX_CUT, head_bytes))
        cut_bytes, num_left_out = (len(found[0]), int(found[1])) if found is not None else (0, 0)
        if size <= head_bytes + cut_bytes + tail_bytes + min(_SLACK_BYTES, tail_bytes):
            return
        start = size - tail_bytes
        start += _line_at(fd, start)
        kept = os.open(neighbour, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _copy(fd, start, size, kept)
            num_lost = os.fstat(fd).st_size - size
            os.ftruncate(fd, head_bytes)
            _write_all(fd, _CUT % (num_left_out + num_lost + start - head_bytes - cut_bytes))
            _copy(kept, 0, size - start, fd)
        finally:
            os.close(kept)
            neighbour.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _line_at(fd: int, at: int) -> int:
    """How many bytes behind `at` the next line begins; 0 where none does for long."""
    return os.pread(fd, _CHUNK, at).find(b"\n") + 1


def _copy(source: int, start: int, end: int, target: int) -> None:
    """In pieces: the launcher must not hold 28 MB."""
    while start < end:
        piece = os.pread(source, min(_CHUNK, end - start), start)
        if not piece:
            return
        _write_all(target, piece)
        start += len(piece)


class Capture:
    """Two pipes between the script and our own stdout and stderr, emptied by a small process of its own.

    It lives in a session of its own and as long as the script writes: a launcher that is killed neither ends nor blocks
    the training.
    """

    def __init__(self, log: Path) -> None:
        self._log = Log(log)
        self.note = ""  # what went wrong with the copy, for the user; after `drain`
        out, self._out_writer = os.pipe()
        err, self._err_writer = os.pipe()
        self._targets = {out: 1, err: 2}
        self._told, self._tell = os.pipe()  # to it: the script has ended
        self._hear, self._said = os.pipe()  # from it: the note
        self._pid: Optional[int] = None

    @property
    def writers(self) -> tuple[int, int]:
        """The ends for the script's stdout and stderr."""
        return self._out_writer, self._err_writer

    def started(self) -> None:
        """The script has its ends: starts the process that reads, and closes what is not ours."""
        self._pid = os.fork()
        if self._pid == 0:
            self._live()
        for fd in (self._out_writer, self._err_writer, *self._targets, self._told, self._said):
            os.close(fd)
        self._log.leave()

    def drain(self) -> None:
        """Waits until what the ended script left is handed on; a daemon of its, with the pipe, is not waited for."""
        if self._pid is None:
            return
        with suppress(OSError):  # it has gone already
            os.write(self._tell, b"E")
        os.close(self._tell)
        with os.fdopen(self._hear, "rb") as heard:
            self.note = os.fsdecode(heard.read())
        with suppress(ChildProcessError):  # reaped with the orphans, as PID 1
            os.waitpid(self._pid, 0)
        self._pid = None

    def _live(self) -> NoReturn:
        """The reading process's whole life; never returns."""
        try:
            os.setsid()
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(signum, signal.SIG_IGN)
            for fd in (self._out_writer, self._err_writer, self._tell, self._hear):
                os.close(fd)
            self._read_on()
            self._log.close()
            _write_all(self._said, os.fsencode(self._log.note))
        finally:
            os._exit(0)

    def _read_on(self) -> None:
        has_ended, told = False, self._told
        while self._targets:
            fds = [*self._targets] if told < 0 else [*self._targets, told]
            readable, _, _ = select.select(fds, [], [], 0 if has_ended else None)
            if has_ended and not readable:
                return
            if told in readable:
                readable.remove(told)
                has_ended = bool(os.read(told, 1))
                told = -1  # an end of file: the launcher was killed, and the script's own ends of file are the end
            for fd in readable:
                self._hand_on(fd)

    def _hand_on(self, fd: int) -> None:
        data = os.read(fd, _CHUNK)
        if not data:
            os.close(fd)
            del self._targets[fd]
            return
        self._log.write(data)
        try:
            _write_all(self._targets[fd], data)
        except OSError:
            # Our reader is gone (`| head`): so is the script's, from now on, as it would be without us.
            os.close(fd)
            del self._targets[fd]


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
