"""Lists runs as a table, one a line, the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Optional, Sequence

from traceml.schema import units
from traceml.views.text import columns
from traceml.views.text.words import seconds

WIDTH: Final = 80
_GAP: Final = "  "
_HEAD: Final = ("name", "started", "status", "steps", "verdict", "took")
_RIGHT: Final = frozenset({3, 5})
_MIN_NAME: Final = 12


@dataclass(frozen=True)
class RunRow:
    """A run in the list; `trouble` says why a run cannot be read, in place of its figures."""

    name: str
    started_at: Optional[float] = None  # wall clock, seconds
    status: str = ""
    steps: Optional[int] = None
    diagnosis: str = ""
    duration_s: Optional[float] = None
    trouble: str = ""


def runs_table(rows: Sequence[RunRow], *, now: float, width: int = WIDTH) -> str:
    """The table, a newline at the end.

    Args:
        rows: In any order.
        now: Wall clock in seconds; today's runs show the time, older ones the date.
        width: Columns; names are cut in their middle before a line is wider.
    """
    ordered = sorted(rows, key=lambda row: row.started_at or 0.0, reverse=True)
    cells = [_HEAD, *(_cells(row, now) for row in ordered if not row.trouble)]
    widths = [max(columns.width_of(line[i]) for line in cells) for i in range(len(_HEAD))]
    named = [columns.width_of(columns.clean(row.name)) for row in ordered]
    room = width - sum(widths[1:]) - len(_GAP) * (len(_HEAD) - 1)
    widths[0] = max(_MIN_NAME, min(max([widths[0], *named]), room))
    by_row = iter(cells[1:])
    lines = [_line(_HEAD, widths)]
    lines += [_trouble(row, widths[0], width) if row.trouble else _line(next(by_row), widths) for row in ordered]
    return "".join(columns.head(line, width).rstrip() + "\n" for line in lines)


def _cells(row: RunRow, now: float) -> tuple[str, ...]:
    return (
        columns.clean(row.name),
        _day(row.started_at, now),
        columns.clean(row.status),
        "" if row.steps is None else units.count(row.steps),
        columns.clean(row.diagnosis).replace("_", " "),
        "" if row.duration_s is None else seconds(row.duration_s),
    )


def _day(started_at: Optional[float], now: float) -> str:
    if started_at is None:
        return ""
    try:
        then, today = datetime.fromtimestamp(started_at).astimezone(), datetime.fromtimestamp(now).astimezone()
    except (OverflowError, OSError, ValueError):  # a foreign summary's date
        return "?"
    if then.date() == today.date():
        return f"{then:%H:%M}"
    return f"{then:%b} {then.day}" if then.year == today.year else f"{then:%b %Y}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for at, (cell, columns_wide) in enumerate(zip(cells, widths)):
        text = columns.fit(cell, columns_wide)
        blanks = " " * (columns_wide - columns.width_of(text))
        parts.append(blanks + text if at in _RIGHT else text + blanks)
    return _GAP.join(parts)


def _trouble(row: RunRow, name_width: int, width: int) -> str:
    name = columns.pad(columns.fit(columns.clean(row.name), name_width), name_width)
    return columns.fit(f"{name}{_GAP}{columns.clean(row.trouble)}", width)
