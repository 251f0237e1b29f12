"""Keeps the run's events bounded: the newest and the longest stay, the others are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterable

from traceml.schema.records import Event
from traceml.schema.stalls import GROWING
from traceml.schema.struct import from_plain
from traceml.store.packing import DamagedContent

if TYPE_CHECKING:
    import sqlite3

_MAX_TEXT: Final = 200  # characters
DROPPED_NOTE: Final = "events-dropped"
_DELETE_GROWING: Final = "DELETE FROM events WHERE rank = ? AND step = ? AND at_ns = ? AND kind IN (?, ?)"
_COLUMNS: Final = ("kind", "rank", "step", "at_ns", "duration_ns", "count", "text")


def add_events(db: sqlite3.Connection, events: Iterable[Event], *, num_rows: int, max_rows: int) -> int:
    """Puts events in and, above `max_rows`, drops to nine tenths of it; the number of rows that are there then.

    The newest half of what stays are kept whatever they are; of the older ones the longest.
    """
    events = list(events)
    for event in events:
        if event.kind in GROWING:  # as it is now: what was known of it before goes
            num_rows -= db.execute(_DELETE_GROWING, (event.rank, event.step, event.at_ns, *GROWING)).rowcount
    rows = [(None, e.kind, e.rank, e.step, e.at_ns, e.duration_ns, e.count, _short(e.text)) for e in events]
    db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    num_rows += len(rows)
    if num_rows <= max_rows:
        return num_rows
    num_kept = max_rows * 9 // 10
    num_newest = num_kept // 2
    found = db.execute("SELECT id, duration_ns FROM events ORDER BY id").fetchall()
    older = sorted(found[: len(found) - num_newest], key=lambda row: (row[1] or 0, row[0]), reverse=True)
    dropped = older[num_kept - num_newest :]
    db.executemany("DELETE FROM events WHERE id = ?", [(row[0],) for row in dropped])
    _count_dropped(db, len(dropped))
    return len(found) - len(dropped)


def storable(text: str) -> str:
    """Text as SQLite takes it: what is not Unicode in it (a file name's odd bytes) is written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _short(text: str) -> str:
    text = storable(text)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _count_dropped(db: sqlite3.Connection, num_dropped: int) -> None:
    known = db.execute("SELECT value FROM meta WHERE name = 'num_events_dropped'").fetchone()
    num_all = num_dropped + (int(known[0]) if known else 0)
    note = f"{num_all:,} older, shorter events were dropped to keep the database small."
    db.execute("INSERT OR REPLACE INTO meta VALUES ('num_events_dropped', ?)", (str(num_all),))
    db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (DROPPED_NOTE, note))


def read_events(db: sqlite3.Connection) -> list[Event]:
    """The events that are kept, in the order they came.

    Raises:
        StructError: A value has the wrong type.
        DamagedContent: A time or count cannot be.
    """
    rows = db.execute("SELECT kind, rank, step, at_ns, duration_ns, count, text FROM events ORDER BY id")
    events = [from_plain(Event, dict(zip(_COLUMNS, row))) for row in rows]
    if any(event.count < 1 or (event.duration_ns or 0) < 0 for event in events):
        raise DamagedContent("an event of negative length or count")
    return events
