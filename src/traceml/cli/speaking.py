"""Writes to stdout and stderr; a full or closed stderr changes nothing, a full stdout is one line."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final, Protocol, TextIO

from traceml.errors import UsageError

_WIDTH: Final = 80
_LEAST_WIDTH: Final = 60


def open_missing() -> None:
    """Puts /dev/null where the shell closed stdin, stdout or stderr (`2>&-`), so that no file of ours takes its number.

    What we start does not inherit it: the script finds its descriptors as the shell left them.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # takes the lowest number: 0
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # until the process ends
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # likewise


def answer(text: str) -> None:
    """Puts an answer on stdout, all of it, as its encoding can carry it.

    Raises:
        UsageError: `cannot-print`: stdout is full.
        BrokenPipeError: Who read it has gone.
    """
    try:
        sys.stdout.write(_carried(text, sys.stdout))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What it still holds would fail again at exit, with a traceback and another exit code.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # until the process ends
        message = f"Cannot write to stdout ({error.strerror}). Make room, or send the answer elsewhere."
        raise UsageError(message, slug="cannot-print") from None


class Draws(Protocol):
    """What makes a text of so many columns, with or without blocks and arrows."""

    def __call__(self, *, width: int, ascii_only: bool) -> str:
        """The text."""


def drawn_for(stream: TextIO, draw: Draws) -> str:
    """A text as a stream can carry it: as wide as its terminal, and plain where its encoding has no blocks."""
    width = _width_for(stream)
    text = draw(width=width, ascii_only=False)
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return draw(width=width, ascii_only=True)
    return text


def _width_for(stream: TextIO) -> int:
    """The columns of a text for a stream: 80, or fewer on a narrower terminal, down to 60."""
    if not stream.isatty():
        return _WIDTH
    return min(_WIDTH, max(_LEAST_WIDTH, shutil.get_terminal_size((_WIDTH, 0)).columns))


def tell(text: str) -> None:
    """Puts words on stderr as its encoding can carry them; where it takes none, nobody hears us and all goes on."""
    try:
        sys.stderr.write(_carried(text, sys.stderr))
        sys.stderr.flush()
    except (OSError, ValueError):
        # Its pending words would fail again at exit and make the exit code 120.
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # until the process ends


def _carried(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "replace").decode(encoding)
