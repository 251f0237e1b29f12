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


def clean(text: str) -> str:
    """Text from the run on one line: no control characters, and only signs that every terminal draws equally wide.

    Variation selectors go (they make some terminals draw a sign wider than it counts), and so do marks in heaps.
    """
    kept, num_marks = [], 0
    for ch in columns.clean(text):
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
    if not text[len(whole)].isspace():
        whole = whole[: whole.rfind(" ")] if " " in whole.strip() else whole
    ends = [whole.rfind(mark) for mark in _ENDS]
    if max(ends) >= _KEPT * room:
        whole = whole[: max(ends)]
    return whole.rstrip(" ,;:.·") + ELLIPSIS


def _varies(ch: str) -> bool:
    return "\ufe00" <= ch <= "\ufe0f" or "\U000e0100" <= ch <= "\U000e01ef"
