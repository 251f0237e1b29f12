"""Joins pieces of styled text into rows: measured, cut and padded in cells, drawn as SGR sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

from traceml.views.terminal import cells
from traceml.views.terminal.palette import PLAIN, Palette, Style

if TYPE_CHECKING:
    from typing import Callable

Piece = tuple[str, Style]
Row = list[Piece]


def width(row: Sequence[Piece]) -> int:
    """The cells a row takes."""
    return sum(cells.width_of(text) for text, _ in row)


def cut(row: Sequence[Piece], columns: int) -> Row:
    """As much of the row as fits; the last resort, behind whoever composed it."""
    kept: Row = []
    left = columns
    for text, style in row:
        part = cells.head(text, left)
        if part:
            kept.append((part, style))
        if part != text:
            break
        left -= cells.width_of(part)
    return kept


def padded(row: Sequence[Piece], columns: int) -> Row:
    """The row with blanks behind it up to `columns`."""
    blanks = columns - width(row)
    return [*row, (" " * blanks, PLAIN)] if blanks > 0 else list(row)


def dimmed(row: Sequence[Piece]) -> Row:
    """The row as what keeps standing when nothing new comes: without colours, dim."""
    return [(text, Style(is_dim=True)) for text, _ in row]


def to_sgr(row: Sequence[Piece], palette: Palette) -> str:
    """The row for a terminal: no sequence but SGR, reset at its end; no control character of a text survives."""
    drawn: list[str] = []
    before = ""
    for text, style in row:
        begin = palette.sgr(style)
        if begin != before:
            drawn.append("\x1b[0m" * bool(before) + begin)
            before = begin
        drawn.append(text if text.isprintable() else "".join(filter(str.isprintable, text)))
    return "".join([*drawn, "\x1b[0m"])


def plain(row: Sequence[Piece]) -> str:
    """The row's text alone."""
    return "".join(text for text, _ in row)


def mapped(row: Sequence[Piece], change: Callable[[str], str]) -> Row:
    """The row with each text changed."""
    return [(change(text), style) for text, style in row]
