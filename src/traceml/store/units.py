"""Keeps the ledger's units as steps are kept: the newest one by one, all in ever coarser blocks, within the cap."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Iterator, Mapping, NamedTuple, Optional, Sequence

from traceml.schema.syncs import UnitSums, merged
from traceml.store import retention
from traceml.store.cover import Extent, Stretch, complete_until
from traceml.store.packing import DamagedContent
from traceml.store.retention import Shelf
from traceml.store.tables import SPANS, block_key, step_key
from traceml.store.unit_packing import pack_unit, unpack_unit

if TYPE_CHECKING:
    import sqlite3

    from traceml.store.retention import Plan

#: Whose extent the units have in the tables of extents: they are of all ranks.
ALL_RANKS: Final = -1
_COLUMNS: Final = ("first_step", "last_step", "body")
_MAX_REGIONS: Final = 64


class KnownUnits(NamedTuple):
    """What a writer remembers of the units: what is held, the units of the unfinished block, the regions' numbers."""

    extent: Extent
    pending: tuple[UnitSums, ...]
    regions: Mapping[str, int]


class _Regions:
    """Numbers the regions' names; more than 64 of them share the last number."""

    def __init__(self, db: sqlite3.Connection, known: Mapping[str, int]) -> None:
        self._db, self.known = db, dict(known)

    def number(self, name: str) -> int:
        found = self.known.get(name)
        if found is None:
            found = self.known[name] = min(len(self.known), _MAX_REGIONS - 1)
            self._db.execute("INSERT OR IGNORE INTO unit_regions VALUES (?, ?)", (found, name))
        return found


def _merge(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    # Names are of no matter here: the numbers go through as they are.
    whole = merged(unpack_unit(_bytes(row[2]), {}) for row in rows)
    assert whole is not None
    return (whole.first_step, whole.last_step, pack_unit(whole, lambda name: int(name.rpartition(":")[2])))


UNITS: Final = Shelf("units", "unit_blocks", _COLUMNS, _merge)


def read_regions(db: sqlite3.Connection) -> dict[int, str]:
    """The names of the regions by their number."""
    rows = db.execute("SELECT number, name FROM unit_regions").fetchall()
    if not all(isinstance(number, int) and isinstance(name, str) for number, name in rows):
        raise DamagedContent("a region of the units")
    return dict(rows)


def read(db: sqlite3.Connection, extent: Optional[Extent]) -> Optional[KnownUnits]:
    """What an earlier writer knew of the units; None: there were none.

    Raises:
        sqlite3.Error: The database cannot be read.
        DamagedContent: A unit was not written by us.
    """
    if extent is None:
        return None
    regions = read_regions(db)
    stretch = Stretch(0, complete_until(1, extent.last_step) + 1, extent.last_step)
    return KnownUnits(extent, tuple(units_of(db, stretch, regions)), {name: number for number, name in regions.items()})


def add_units(
    db: sqlite3.Connection, units: Sequence[UnitSums], *, known: Optional[KnownUnits], plan: Plan
) -> Optional[KnownUnits]:
    """Stores the units behind the last known one; what is known then.

    Args:
        db: Inside a transaction.
        units: In order; known ones and repetitions are passed over.
        known: What was known before; None: there were none.
        plan: How much is kept.
    """
    last = known.extent.last_step if known else 0
    new = [unit for unit in units if unit.first_step > last]
    if not new:
        return known
    regions = _Regions(db, known.regions if known else {})
    before = known.extent if known else retention.new_extent(new[0].first_step)._replace(last_step=0)
    last_step = new[-1].last_step
    blocks, pending = [], []
    for index, group in groupby([*(known.pending if known else ()), *new], key=lambda u: (u.last_step - 1) // SPANS[1]):
        members = list(group)
        if (index + 1) * SPANS[1] <= last_step:
            whole = merged(members)
            assert whole is not None
            body = pack_unit(whole, regions.number)
            blocks.append((block_key(0, 1, whole.last_step), whole.first_step, whole.last_step, body))
        else:
            pending = members
    kept = extent = before._replace(last_step=last_step)
    is_further = complete_until(1, last_step) > complete_until(1, before.last_step)
    if is_further or known is None:  # what is held changes with a whole block only
        db.executemany("INSERT OR REPLACE INTO unit_blocks VALUES (?, ?, ?, ?)", blocks)
        extent = retention.combine(db, 0, extent, last_step_before=before.last_step, shelf=UNITS)
        kept = retention.trimmed(extent, plan)
        retention.drop(db, 0, old=extent, new=kept, shelf=UNITS)
    db.executemany(
        "INSERT OR REPLACE INTO units VALUES (?, ?)",
        [
            (step_key(0, unit.last_step), pack_unit(unit, regions.number))
            for unit in new
            if unit.last_step > kept.low[0] or unit.last_step <= kept.head[0]
        ],
    )
    return KnownUnits(kept, tuple(pending), regions.known)


def apply_plan(db: sqlite3.Connection, known: KnownUnits, *, plan: Plan) -> KnownUnits:
    """Drops what a more frugal plan no longer holds; what is known then."""
    extent = retention.trimmed(known.extent, plan)
    retention.drop(db, 0, old=known.extent, new=extent, shelf=UNITS)
    if plan.is_early:
        extent = retention.fold_early(db, 0, extent, shelf=UNITS)
    return known._replace(extent=extent)


def units_of(db: sqlite3.Connection, stretch: Stretch, regions: Mapping[int, str]) -> Iterator[UnitSums]:
    """The units of a stretch, in order: one by one, or its blocks. A stretch may hold none.

    Raises:
        DamagedContent: One was not written by us.
    """
    if stretch.level == 0:
        keys = (step_key(0, stretch.first), step_key(0, stretch.last))
        rows = db.execute("SELECT body FROM units WHERE key BETWEEN ? AND ? ORDER BY key", keys)
    else:
        keys = (block_key(0, stretch.level, stretch.first), block_key(0, stretch.level, stretch.last))
        rows = db.execute("SELECT body FROM unit_blocks WHERE key BETWEEN ? AND ? ORDER BY key", keys)
    for (body,) in rows:
        yield unpack_unit(_bytes(body), regions)


def _bytes(found: object) -> bytes:
    if not isinstance(found, bytes):
        raise DamagedContent("a value of the wrong type")
    return found
