"""Names the full screen's keys: the line at the bottom, and the help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from traceml.views.terminal import cells, rows
from traceml.views.terminal.palette import BOLD, DIM, PLAIN

if TYPE_CHECKING:
    from traceml.views.terminal.rows import Row


class Key(NamedTuple):
    """A key: what stands on it, what it is called at the bottom, what the help says, when it goes for want of room."""

    sign: str
    label: str
    told: str
    goes: int  # the larger, the sooner
    needs: str = ""  # shown only of a run that has it


KEYS: Final = (
    Key("q", "close", "closes this view; the training goes on", 0),
    Key("space", "pause", "holds everything as it is, and goes on", 2),
    Key("←→", "history", "an earlier or later stretch of the run, with a verdict of its own", 3),
    Key("r", "ranks", "all ranks: phases, own work, heat maps by steps", 4, needs="ranks"),
    Key("l", "layers", "the layers by time and memory", 5, needs="layers"),
    Key("s", "system", "host, devices, processes, what the report rests on", 6),
    Key("o", "output", "the output alone; again: back", 5, needs="output"),
    Key("tab", "next rank", "another rank's output", 6, needs="outputs"),
    Key("w", "whole run", "the curves of the whole run, or of its last steps", 7),
    Key("?", "help", "this page", 1),
)
#: Those without a place at the bottom.
MORE: Final = (
    Key("↑↓", "", "scrolls the output a line; page up, page down, home and end by more", 9, needs="output"),
    Key("esc", "", "back to the first page, and to now", 9),
)
_GAP: Final = " · "


def keys_line(has: frozenset[str], width: int) -> Row:
    """As many keys as fit, the less needed ones go first; closing and help stay as long as anything does."""
    shown = [key for key in KEYS if not key.needs or key.needs in has]
    while shown:
        row: Row = [(" ", PLAIN)]
        for at, key in enumerate(shown):
            row += [(_GAP if at else "", DIM), (key.sign, BOLD), (f" {key.label}", PLAIN)]
        if rows.width(row) <= width:
            return row
        shown.remove(max(shown, key=lambda key: key.goes))
    return []


def help_rows(has: frozenset[str]) -> list[Row]:
    """A row a key."""
    told = [key for key in (*KEYS, *MORE) if not key.needs or key.needs in has]
    return [[(f"  {cells.pad(key.sign, 8)}", BOLD), (key.told, PLAIN)] for key in told]
