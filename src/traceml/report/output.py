"""Reads what a rank printed from its log in the run folder, free of everything that could drive a terminal."""

from __future__ import annotations

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
_MAX_LINE_BYTES: Final = 64 * 1024
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


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
    path = folder / f"rank-{rank}.log"
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
        message = f"No output of rank {rank} at '{path}' ({error.strerror}). Run with --save-output to keep it."
        raise RunError(message, slug="no-output") from None
    return Lines(rank, tuple(kept), num_found - len(kept))


def _lines(path: Path) -> Iterator[str]:
    with open_regular(path) as file:
        while raw := file.readline(_MAX_LINE_BYTES):
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            # A progress bar redraws its line behind carriage returns: the last state is what people saw.
            yield units.clean(_ESCAPE.sub("", text.rpartition("\r")[2]))
