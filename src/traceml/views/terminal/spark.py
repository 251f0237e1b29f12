"""Draws curves: a row of blocks for a spark line, braille filled to its base where there are more rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Optional, Sequence

if TYPE_CHECKING:
    from traceml.report.series import Point

_LEVELS: Final = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS: Final = "_.:-=+*#"
_KEPT_SHARE: Final = 0.98  # of the values: those above are cut off at the top; their number is said beside the curve
_HEADROOM: Final = 1.8  # times the median: what hardly varies is a calm line at half height, not noise
_BRAILLE: Final = 0x2800
#: The dots of a cell from its base up, in its left and its right column.
_DOTS: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))

Values = Sequence[Optional[float]]


def spark(values: Values, cells: int, *, top: Optional[float] = None, is_ascii: bool = False) -> str:
    """One row of at most `cells` blocks, the oldest value left; where values share a cell the largest is drawn.

    `top` is the value at full height; None: that of `top_of(values)`.
    """
    levels = _ASCII_LEVELS if is_ascii else _LEVELS
    found = gathered(values, cells)
    top = top_of(values) if top is None else top
    return "".join(" " if value is None else levels[_level(value, top, len(levels))] for value in found)


def curve(values: Values, cells: int, height: int, *, base: float = 0.0, is_ascii: bool = False) -> list[str]:
    """`height` rows of braille, the upper one first, filled from the base: two values a cell, four levels a row.

    Args:
        values: Oldest first; None leaves a gap.
        cells: How wide.
        height: How many rows.
        base: The value at the bottom.
        is_ascii: `#` instead, one value a cell and one level a row.
    """
    per_cell, per_row = (1, 1) if is_ascii else (2, 4)
    found = gathered(values, cells * per_cell)
    top = top_of(values)
    dots = [None if value is None else _dots(value - base, top - base, height * per_row) for value in found]
    rows = []
    for row in reversed(range(height)):
        filled = [0 if dot is None else min(per_row, max(0, dot - row * per_row)) for dot in dots]
        if is_ascii:
            rows.append("".join("#" if one else " " for one in filled))
        else:
            pairs = zip(filled[::2], [*filled[1::2], 0])
            rows.append("".join(_braille(left, right) for left, right in pairs))
    return rows


def gathered(values: Values, cells: int) -> list[Optional[float]]:
    """At most `cells` values: the largest of each share of neighbours, so that a single slow step stays to be seen."""
    clean = [value if value is not None and math.isfinite(value) else None for value in values]
    if cells < 1:
        return []
    if len(clean) <= cells:
        return clean
    edges = [at * len(clean) // cells for at in range(cells + 1)]
    return [
        max((value for value in clean[left:right] if value is not None), default=None)
        for left, right in zip(edges, edges[1:])
    ]


def over_steps(points: Sequence[Point], extent: tuple[int, int], cells: int, *, is_held: bool) -> list[Optional[float]]:
    """The largest value of each cell's steps, at most one cell a step, so that curves of one axis stand in line.

    Args:
        points: In step order.
        extent: First and last step of the axis.
        cells: At most so many.
        is_held: What is sampled now and then keeps its value until the next sample; else steps without one are gaps.
    """
    first, last = extent
    num_steps = last - first + 1
    size = max(0, min(cells, num_steps))
    found: list[Optional[float]] = [None] * size
    for begin, end, _, _, most in points:
        at = (begin - first) * size // num_steps
        until = at if end == begin else (end - first) * size // num_steps
        for cell in range(max(0, at), min(size - 1, until) + 1) if math.isfinite(most) else ():
            known = found[cell]
            if known is None or most > known:
                found[cell] = most
    held = next((value for value in found if value is not None), None)
    for cell in range(size if is_held else 0):
        held = found[cell] = held if found[cell] is None else found[cell]
    return found


def top_of(values: Values) -> float:
    """The value at the top of a curve: 98 % lie below, and the median at most at five ninths of the height."""
    known = sorted(value for value in values if value is not None and math.isfinite(value))
    if not known:
        return 0.0
    high = known[min(len(known) - 1, math.ceil(_KEPT_SHARE * len(known)) - 1)]
    return max(high, _HEADROOM * known[(len(known) - 1) // 2])


def _level(value: float, top: float, num_levels: int) -> int:
    return min(num_levels - 1, int(_share(value, top) * num_levels))


def _dots(value: float, top: float, most: int) -> int:
    """At least one dot for what was measured: nothing at all means that nothing was."""
    return max(1, round(_share(value, top) * most))


def _share(value: float, top: float) -> float:
    return 0.0 if top <= 0 else min(1.0, max(0.0, value / top))


def _braille(left: int, right: int) -> str:
    return chr(_BRAILLE + sum(_DOTS[0][:left]) + sum(_DOTS[1][:right]))
