"""Draws the table of `traceml run --check`: what is seen, what is not, and what to add; 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator

from traceml.views.text import columns
from traceml.views.text.words import plural

if TYPE_CHECKING:
    from traceml.report.check import Check, CheckRow

WIDTH: Final = 80
_TITLE: Final = "TraceML · check of "
_NAME: Final = 20
_SEEN: Final = {True: "seen", False: "not seen", None: "-"}
_INDENT: Final = 2 + _NAME + 10


def check_table(check: Check, *, ascii_only: bool = False) -> str:
    """The table, a newline at the end; no line is wider than 80 columns."""
    told = f" · {plural(check.num_steps, 'step')}"
    script = columns.fit(columns.clean(check.script), WIDTH - len(_TITLE) - len(told))
    lines = [_TITLE + script + told, ""]
    for row in check.rows:
        lines += _row(row)
    lines.append("")
    missing = [row.name for row in check.rows if row.is_seen is False]
    told = f"Not seen: {', '.join(missing)}." if missing else "Everything a verdict needs is seen."
    if check.is_running:
        told += " Tracing has stopped; the training goes on."
    lines += columns.wrap(told, WIDTH)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return columns.to_ascii(text) if ascii_only else text


def _row(row: CheckRow) -> Iterator[str]:
    name = columns.pad(columns.fit(columns.clean(row.name), _NAME - 2), _NAME)
    begin = f"  {name}{columns.pad(_SEEN[row.is_seen], 10)}"
    text = columns.clean(row.text)
    for line in columns.wrap(text, WIDTH - _INDENT):
        yield begin + line
        begin = " " * _INDENT
    if row.add:
        for line in columns.wrap(f"add {columns.clean(row.add)}", WIDTH - _INDENT):
            yield " " * _INDENT + line
