"""Writes to stdout and stderr; a full or closed stderr changes nothing, a full stdout is one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from traceml.errors import UsageError


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
