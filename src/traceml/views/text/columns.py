"""Counts terminal columns: cleans, cuts, pads and wraps text so that no line is wider than it may be."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, Iterator

from traceml.schema import units

_ELLIPSIS: Final = "…"
_TIED: Final = "\N{NO-BREAK SPACE}"
#: A blank that a line must not break at: between a number and its unit, and inside `2 min 58 s`.
_TIE: Final = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|%|B|[KMG]iB)\b|%)|(?<=\d min) (?=\d)|(?<=\d h) (?=\d)")
#: Latin, arrows, lines, blocks and braille, all of them one column wide: what nearly every text of ours is made of.
_NARROW: Final = re.compile("[ -~\u00a0-\u00ac\u00ae-\u00ff\u2010-\u2027\u2190-\u21ff\u2500-\u259f\u2800-\u28ff]+\\Z")
_ASCII: Final = {
    "·": "|",
    "…": "~",
    "→": "->",
    "×": "x",
    "–": "-",
    "—": "-",
    "’": "'",
    "“": '"',
    "”": '"',
    "µ": "u",
    "≥": ">=",
    "≤": "<=",
}


def clean(text: str) -> str:
    """Text from the user's side on one line, without control characters, runs of blanks and lone surrogates."""
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Text from the user's side without control characters and lone surrogates; every blank stays."""
    return text if text.isprintable() else units.clean(text.encode("utf-8", "replace").decode("utf-8"))


def width_of(text: str) -> int:
    """The columns a text takes in a terminal: wide characters two, combining ones none."""
    return len(text) if text.isascii() or _NARROW.match(text) else sum(map(_width, text))


@lru_cache(maxsize=4096)  # the panel measures some 3,000 characters a draw, most of them the same
def _width(ch: str) -> int:
    if unicodedata.combining(ch) or unicodedata.category(ch) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(ch) in ("W", "F") else 1


def head(text: str, columns: int) -> str:
    """As much of the beginning as fits."""
    if 2 * len(text) <= columns:  # however wide its characters
        return text
    if text.isascii():
        return text[: max(0, columns)]
    used = 0
    for at, ch in enumerate(text):
        used += _width(ch)
        if used > columns:
            return text[:at]
    return text


def fit(text: str, columns: int) -> str:
    """The text, its middle replaced by an ellipsis when it is too wide: both ends of a name tell it apart."""
    if width_of(text) <= columns:
        return text
    keep = max(0, columns - 1)
    behind = head(text[::-1], keep // 2)[::-1]
    return head(text, keep - width_of(behind)) + _ELLIPSIS + behind


def pad(text: str, columns: int) -> str:
    """The text with blanks behind it up to `columns`."""
    return text + " " * (columns - width_of(text))


def wrap(text: str, columns: int) -> Iterator[str]:
    """Lines of at most `columns`; breaks at blanks, not before a unit, inside a word only when it alone is too wide."""
    line = ""
    for word in _TIE.sub(_TIED, text).split(" "):
        joined = f"{line} {word}" if line else word
        if width_of(joined) <= columns:
            line = joined
            continue
        if line:
            yield _untied(line)
        line = word
        while width_of(line) > columns:
            part = head(line, columns) or line[0]
            yield _untied(part)
            line = line[len(part) :]
    if line:
        yield _untied(line)


def _untied(line: str) -> str:
    return line.replace(_TIED, " ")


def to_ascii(text: str) -> str:
    """The text for a stream that carries ASCII alone: known signs in their nearest form, others as `?`."""
    return "".join(_ASCII.get(ch, ch if ch.isascii() else "?" * max(1, _width(ch))) for ch in text)
