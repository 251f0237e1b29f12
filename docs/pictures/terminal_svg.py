"""Draws a terminal's cells as an SVG that looks alike everywhere: blocks and braille are shapes, no glyphs."""

from __future__ import annotations

from html import escape
from typing import Iterator, NamedTuple, Optional, Sequence

CELL_W, CELL_H, BASE = 8.4, 18.0, 13.0
PAD = 14.0
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
GROUND, FORE, FRAME = "#1b1d23", "#d7dae0", "#2a2d35"
PALETTE = (
    *("#101216", "#e06c75", "#98c379", "#d7a65f", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4"),
    *("#5c6370", "#ff7b86", "#b5e08f", "#f0c674", "#7cc4ff", "#d99aee", "#6fd0dc", "#ffffff"),
)
_LOWER = "▁▂▃▄▅▆▇█"
_SHADES = {"░": 0.3, "▒": 0.55, "▓": 0.8}
#: Upper left, upper right, lower left, lower right.
_QUADRANTS = {"▚": (1, 0, 0, 1), "▞": (0, 1, 1, 0), "▙": (1, 0, 1, 1), "▌": (1, 0, 1, 0), "▐": (0, 1, 0, 1)}
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))  # column and row of each bit


class Cell(NamedTuple):
    """One character of the terminal and how it looks; colours as `#rrggbb`."""

    text: str
    fore: str = FORE
    back: Optional[str] = None
    is_bold: bool = False
    is_dim: bool = False


def svg(rows: Sequence[Sequence[Cell]], *, title: str) -> str:
    """The picture of a terminal with these rows."""
    width = max(len(row) for row in rows) * CELL_W + 2 * PAD
    height = len(rows) * CELL_H + 2 * PAD
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.1f} {height:.1f}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="9" fill="{GROUND}" stroke="{FRAME}"/>',
        f'<g font-family="{FONTS}" font-size="14">',
    ]
    for y, row in enumerate(rows):
        drawn += _row(row, PAD + y * CELL_H)
    return "\n".join([*drawn, "</g>", "</svg>", ""])


def _row(row: Sequence[Cell], top: float) -> Iterator[str]:
    at = 0
    while at < len(row):
        cell, start = row[at], at
        kind = _kind(cell.text)
        at += 1
        # Equal shapes in one piece; text runs on over single blanks, so that words stay apart by their own width.
        while at < len(row) and row[at][1:] == cell[1:] and _joins(kind, cell.text, row[at].text):
            at += 1
        left, columns = PAD + start * CELL_W, at - start
        if cell.back is not None:
            yield _rect(left, top, columns * CELL_W, CELL_H, cell.back)
        shape = "".join(one.text for one in row[start:at])
        yield from _shapes(shape, cell, kind, left, top)


def _kind(text: str) -> str:
    if "\u2800" <= text <= "\u28ff":
        return "braille"
    return "shape" if text in _LOWER or text in _SHADES or text in _QUADRANTS or text in "─╱" else "text"


def _joins(kind: str, first: str, text: str) -> bool:
    return _kind(text) == kind and (kind == "text" or text == first)


def _shapes(shape: str, cell: Cell, kind: str, left: float, top: float) -> Iterator[str]:
    opacity = 0.6 if cell.is_dim else 1.0
    width, first = len(shape) * CELL_W, shape[0]
    if kind == "text":
        if shape.strip():
            yield _text(shape, cell, left, top)
    elif kind == "braille":
        yield from _braille(shape, cell, left, top)
    elif first in _LOWER:
        height = CELL_H * (_LOWER.index(first) + 1) / 8
        yield _rect(left, top + CELL_H - height, width, height, cell.fore, opacity)
    elif first in _SHADES:
        yield _rect(left, top, width, CELL_H, cell.fore, _SHADES[first])
    elif first == "─":
        yield _rect(left, top + CELL_H / 2, width, 1, cell.fore, opacity * 0.7)
    elif first == "╱":
        yield _rect(left, top, width, CELL_H, cell.fore, 0.25)
        lines = (f"M{left + n * CELL_W:.1f} {top + CELL_H:.1f}l{CELL_W:.1f} {-CELL_H:.1f}" for n in range(len(shape)))
        yield f'<path d="{"".join(lines)}" stroke="{cell.fore}"/>'
    else:
        yield from _quadrants(shape, cell, left, top)


def _text(shape: str, cell: Cell, left: float, top: float) -> str:
    blanks = len(shape) - len(shape.lstrip())
    words = shape.strip()
    look = ' font-weight="bold"' * cell.is_bold + ' opacity="0.6"' * cell.is_dim
    x, length = left + blanks * CELL_W, len(words) * CELL_W
    place = f'x="{x:.1f}" y="{top + BASE:.1f}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text {place} fill="{cell.fore}"{look} xml:space="preserve">{escape(words)}</text>'


def _braille(shape: str, cell: Cell, left: float, top: float) -> Iterator[str]:
    path = []
    for n, ch in enumerate(shape):
        bits = ord(ch) - 0x2800
        for bit, (column, row) in enumerate(_DOTS):
            if bits >> bit & 1:
                x, y = left + n * CELL_W + column * CELL_W / 2, top + row * CELL_H / 4
                path.append(
                    f"M{x + 0.4:.1f} {y + 0.5:.1f}h{CELL_W / 2 - 0.8:.1f}v{CELL_H / 4 - 1:.1f}h{0.8 - CELL_W / 2:.1f}z"
                )
    if path:
        yield f'<path d="{"".join(path)}" fill="{cell.fore}"/>'


def _quadrants(shape: str, cell: Cell, left: float, top: float) -> Iterator[str]:
    for n, ch in enumerate(shape):
        for at, is_set in enumerate(_QUADRANTS[ch]):
            if is_set:
                x, y = left + n * CELL_W + at % 2 * CELL_W / 2, top + at // 2 * CELL_H / 2
                yield _rect(x, y, CELL_W / 2, CELL_H / 2, cell.fore)


def _rect(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> str:
    faint = f' opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{faint}/>'
