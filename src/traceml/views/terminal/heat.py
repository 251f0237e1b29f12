"""Draws ranks by steps as a heat map: one glyph a level, so that it reads without colour, and a legend in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Mapping, NamedTuple, Optional, Sequence

from traceml.schema import units
from traceml.views.terminal import cells
from traceml.views.terminal.palette import ALARM, DIM, PLAIN, Style

if TYPE_CHECKING:
    from traceml.report.series import Point
    from traceml.views.terminal.rows import Piece, Row

_GLYPHS: Final = "·░▒▓█"
_ASCII_GLYPHS: Final = ".:+x#"
_LOW_SHARE: Final = 0.05
_HIGH_SHARE: Final = 0.98
_EVEN: Final = 1.25  # times the low: less apart is one level, not five
_NUMBER: Final = 8


class HeatRow(NamedTuple):
    """A rank of the map."""

    rank: int
    points: Sequence[Point]
    note: str = ""  # "worst", "lost"
    is_lost: bool = False


class Levels(NamedTuple):
    """The limits between five levels, in ms."""

    limits: tuple[float, float, float, float]

    def of(self, value: float) -> int:
        """The level of a value, 0 to 4."""
        return sum(value >= limit for limit in self.limits)


def levels_of(points: Mapping[int, Sequence[Point]]) -> Levels:
    """Five equal levels from what is usual to what is rare; where nothing is rare, all is of the first one."""
    means = sorted(point.mean for row in points.values() for point in row)
    if not means:
        return Levels((0.0, 0.0, 0.0, 0.0))
    low = means[int(_LOW_SHARE * (len(means) - 1))]
    high = max(means[int(_HIGH_SHARE * (len(means) - 1))], _EVEN * low, low + 0.1)
    step = (high - low) / 4
    return Levels((low + step, low + 2 * step, low + 3 * step, low + 4 * step))


def heat_rows(ranks: Sequence[HeatRow], levels: Levels, width: int, *, hot: Style, is_ascii: bool = False) -> list[Row]:
    """A row a rank: its number, a cell a stretch of steps, its mean; all ranks' cells are of the same steps."""
    label = max((len(f"rank {row.rank}") for row in ranks), default=0) + 2
    note = max((cells.width_of(row.note) + 1 for row in ranks if row.note), default=0)
    columns = width - label - _NUMBER - note - 1
    if columns < _NUMBER:
        return []
    first = min((row.points[0].first_step for row in ranks if row.points), default=0)
    last = max((row.points[-1].last_step for row in ranks if row.points), default=0)
    drawn = []
    for row in ranks:
        found = binned(row.points, first=first, last=last, num_cells=min(columns, last - first + 1))
        mean = sum(point.mean for point in row.points) / len(row.points) if row.points else None
        number = f"{'' if mean is None else units.significant(mean):>{_NUMBER - 1}} "
        drawn.append(
            [
                (f"{f'rank {row.rank}':<{label}}", PLAIN),
                *_cells(found, levels, columns, hot=hot, is_ascii=is_ascii),
                (number, PLAIN),
                (row.note, ALARM if row.is_lost else PLAIN),
            ]
        )
    return drawn


def heat_legend(levels: Levels, width: int, *, hot: Style, is_ascii: bool = False) -> Row:
    """`· <12 ░ <24 ▒ <36 ▓ <48 █ 48+ ms`; nothing where it has no room."""
    glyphs = _ASCII_GLYPHS if is_ascii else _GLYPHS
    numbers = [units.significant(limit, 2) for limit in levels.limits]
    if len(set(numbers)) < len(numbers):
        numbers = [units.significant(limit) for limit in levels.limits]
    said = [*(f"<{number}" for number in numbers), f"{numbers[-1]}+ ms"]
    row: Row = []
    for level, text in enumerate(said):
        row += [(f"{' ' * bool(row)}{glyphs[level]}", _style(level, hot)), (f" {text}", DIM)]
    return row if sum(cells.width_of(text) for text, _ in row) <= width else []


def binned(points: Sequence[Point], *, first: int, last: int, num_cells: int) -> list[Optional[float]]:
    """The mean of the points in each share of the steps; None where there are none; a wide point fills its cells."""
    sums, weights = [0.0] * num_cells, [0] * num_cells
    span = max(1, last - first + 1)
    for point in points:
        start = (point.first_step - first) * num_cells // span
        end = max(start + 1, -(-(point.last_step - first + 1) * num_cells // span))
        for at in range(max(0, start), min(num_cells, end)):
            sums[at] += point.mean
            weights[at] += 1
    return [total / weight if weight else None for total, weight in zip(sums, weights)]


def _cells(
    values: Sequence[Optional[float]], levels: Levels, columns: int, *, hot: Style, is_ascii: bool
) -> list[Piece]:
    glyphs = _ASCII_GLYPHS if is_ascii else _GLYPHS
    pieces: list[Piece] = []
    for value in values:
        level = None if value is None else levels.of(value)
        text, style = (" ", PLAIN) if level is None else (glyphs[level], _style(level, hot))
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + text, style)
        else:
            pieces.append((text, style))
    return [*pieces, (" " * (columns - len(values)), PLAIN)]


def _style(level: int, hot: Style) -> Style:
    return (DIM, PLAIN, hot, hot, hot._replace(is_bold=True))[level]
