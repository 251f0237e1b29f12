"""Reads what a rank printed from its log in the run folder, free of everything that could drive a terminal."""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Iterator, Optional

from traceml.errors import RunError
from traceml.schema import units
from traceml.wire.regular import open_regular

if TYPE_CHECKING:
    from pathlib import Path

MAX_LINES: Final = 10_000
_LOG: Final = "rank-{}.log"
_LOG_NAME: Final = re.compile(r"rank-(\d{1,9})\.log")
_MAX_LINE_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class Lines:
    """Lines of a rank's output, `(number, text)` from 1 on; `num_left_out` earlier ones matched too."""

    rank: int
    lines: tuple[tuple[int, str], ...]
    num_left_out: int = 0


def read_output(folder: Path, *, rank: int, window: Optional[tuple[int, int]], search: Optional[str]) -> Lines:
    """The last 10,000 lines of `rank-<r>.log` that lie in the window and hold the text.

    Raises:
        RunError: `no-output` when nothing was captured.
    """
    path = folder / _LOG.format(rank)
    first, last = window or (1, None)
    wanted = search.lower() if search else None
    kept: deque[tuple[int, str]] = deque(maxlen=MAX_LINES)
    num_found = 0
    try:
        for number, text in enumerate(_lines(path), start=1):
            if number < first or (last is not None and number > last):
                continue
            if wanted is None or wanted in text.lower():
                num_found += 1
                kept.append((number, text))
    except OSError as error:
        raise _no_output(path, rank, error) from None
    return Lines(rank, tuple(kept), num_found - len(kept))


def _lines(path: Path) -> Iterator[str]:
    with open_regular(path) as file:
        while raw := file.readline(_MAX_LINE_BYTES):
            yield units.printed(raw.decode("utf-8", "replace").rstrip("\r\n"))


@dataclass(frozen=True)
class Mark:
    """How far a log was read: which file, and how many bytes of it. Only for handing back."""

    inode: int
    at_bytes: int


@dataclass(frozen=True)
class Printed:
    """A piece of a rank's output, byte for byte: nothing of it may go to a terminal as it is.

    `num_skipped_bytes` before it were not read: more had come than was asked for. `is_anew`: the file is another one
    than that of the mark, or was cut, so what was read before is not what stands in front of this.
    """

    data: bytes
    mark: Mark
    num_skipped_bytes: int = 0
    is_anew: bool = False


def read_printed(folder: Path, *, rank: int, since: Optional[Mark], max_bytes: int) -> Printed:
    """What `rank-<r>.log` has more than at a mark, its last `max_bytes`; None: from its beginning.

    Raises:
        RunError: `no-output` when nothing was captured.
    """
    path = folder / _LOG.format(rank)
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            is_anew = since is None or since.inode != found.st_ino or since.at_bytes > found.st_size
            start = 0 if since is None or is_anew else since.at_bytes
            at_bytes = max(start, found.st_size - max_bytes)
            file.seek(at_bytes)
            data = file.read(found.st_size - at_bytes)
    except OSError as error:
        raise _no_output(path, rank, error) from None
    return Printed(data, Mark(found.st_ino, at_bytes + len(data)), at_bytes - start, is_anew)


def ranks_with_output(folder: Path) -> tuple[int, ...]:
    """The ranks whose output was captured."""
    try:
        names = [path.name for path in folder.glob(_LOG.format("*"))]
    except OSError:
        return ()
    return tuple(sorted(int(found.group(1)) for found in map(_LOG_NAME.fullmatch, names) if found))


def _no_output(path: Path, rank: int, error: OSError) -> RunError:
    message = f"No output of rank {rank} at '{path}' ({error.strerror}). Run with --save-output to keep it."
    return RunError(message, slug="no-output")
