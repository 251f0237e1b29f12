"""Tells in which column the cursor stands behind a piece of text, and whether it waits there to wrap."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_TOKEN: Final = re.compile(
    r"\x1b\[([0-?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*([0-~])"
    r"|([\x00-\x1f])|([^\x00-\x1f]+)"
)
_TAB: Final = 8
_FIRST_WIDE: Final = 0x300  # below, every character has one cell
_EMOJI: Final = 0xFE0F  # draws the character before it two cells wide, where the terminal knows


def column_behind(text: str, *, columns: int, start: int = 0) -> int:
    """The cursor's column, 0 based; `columns` where the last one is written and the next character would wrap.

    Args:
        text: What was written since the start of a line, escapes among it.
        columns: The terminal's width.
        start: Where it began.
    """
    at, saved = start, 0
    for parameters, final, two, control, run in _TOKEN.findall(text):
        if run:
            at = _write(run, at, columns)
        elif control:
            at = _control(control, at, columns)
        elif final:
            at = _moved(parameters, final, at, columns)
        elif two == "7":
            saved = at
        elif two == "8":
            at = saved
    return at


def cells_of(char: str) -> int:
    """How many cells a character takes: 0 for one that joins the character before it."""
    if ord(char) < _FIRST_WIDE:
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _write(run: str, at: int, columns: int) -> int:
    if run.isascii():
        whole = at + len(run)
        return whole if whole <= columns else (whole - 1) % columns + 1
    for char in run:
        cells = cells_of(char)
        at = at + cells if at + cells <= columns else cells
    return at


def _control(control: str, at: int, columns: int) -> int:
    if control == "\r":
        return 0
    if control == "\b":
        return max(0, min(at, columns - 1) - 1)
    if control == "\t":
        return min(columns - 1, (at // _TAB + 1) * _TAB)
    return at


def _moved(parameters: str, final: str, at: int, columns: int) -> int:
    words = parameters.split(";")
    number = int(words[0]) if words[0].isdigit() else 1
    if final == "C":
        at += max(1, number)
    elif final == "D":
        at = min(at, columns - 1) - max(1, number)
    elif final in "G`":
        at = number - 1
    elif final in "EF":
        at = 0
    elif final in "Hf":
        at = int(words[1]) - 1 if len(words) > 1 and words[1].isdigit() else 0
    else:
        return at
    return max(0, min(columns - 1, at))
