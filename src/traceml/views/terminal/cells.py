"""Fits text from the run into cells: cleaned, shortened between words, cut and padded by what a terminal draws."""

from __future__ import annotations

import unicodedata
from typing import Final

from traceml.views.text import columns
from traceml.views.text.columns import fit, head, pad, width_of

__all__ = ["clean", "fit", "head", "pad", "shorten", "width_of"]

ELLIPSIS: Final = "…"
_MAX_MARKS: Final = 2  # on one letter: as many as any language stacks
_ENDS: Final = (": ", "; ", ". ", ", ")  # of a clause
_KEPT: Final = 0.6  # of the room: less is not given up for a clause that ends well
_LEAST_KEPT: Final = 0.5  # nor less than this for a whole word: a word so long is code, or a path


def clean(text: str) -> str:
    """Text from the run on one line: no control characters, and only signs that every terminal draws equally wide.

    Variation selectors go (they make some terminals draw a sign wider than it counts), and so do marks in heaps.
    """
    text = columns.clean(text)
    if text.isascii():
        return text
    kept, num_marks = [], 0
    for ch in text:
        num_marks = num_marks + 1 if unicodedata.category(ch) in ("Mn", "Me") else 0
        if num_marks <= _MAX_MARKS and not _varies(ch):
            kept.append(ch)
    return "".join(kept)


def shorten(text: str, room: int) -> str:
    """The text, or its beginning up to the end of a clause or word and an ellipsis; a lone long word is divided."""
    if width_of(text) <= room:
        return text
    if room < 1:
        return ""
    whole = head(text, room - 1)
    at = len(whole) if text[len(whole)].isspace() else whole.rfind(" ")
    if at >= _LEAST_KEPT * len(whole):
        whole = whole[:at]
    ends = [whole.rfind(mark) for mark in _ENDS]
    if max(ends) >= _KEPT * room:
        whole = whole[: max(ends)]
    return whole.rstrip(" ,;:.·") + ELLIPSIS


def two_lines(text: str, first: int, second: int) -> tuple[str, str]:
    """The text on two lines of so many cells: behind a clause where both then fit, else full; shortened at the end."""
    if width_of(text) <= first:
        return text, ""
    for mark in _ENDS:
        at = text.rfind(mark, 0, len(head(text, first)) + len(mark)) + len(mark)
        if at >= len(mark) and width_of(text[:at].rstrip()) <= first and width_of(text[at:]) <= second:
            return text[:at].rstrip(), text[at:]
    line = next(columns.wrap(text, max(1, first)), "")
    return line, shorten(text[len(line) :].strip(), second)


def _varies(ch: str) -> bool:
    return "\ufe00" <= ch <= "\ufe0f" or "\U000e0100" <= ch <= "\U000e01ef"
