"""Takes a rank's new steps in: blocks first, then coarser ones, then what shall be kept one by one."""

from __future__ import annotations

from itertools import groupby, repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Mapping, NamedTuple, Optional, Sequence

from traceml.store import retention
from traceml.store.cover import Extent, complete_until
from traceml.store.levels import block_of_steps, step_record, step_row
from traceml.store.packing import DamagedContent
from traceml.store.tables import INSERT_BLOCK, SPANS, STEP_COLUMNS, TOP_LEVEL, block_key, insert_step, step_key

if TYPE_CHECKING:
    import sqlite3

    from traceml.schema.records import StepRecord
    from traceml.store.retention import Plan

_SELECT_STEPS: Final = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE key BETWEEN ? AND ? ORDER BY key"  # noqa: S608  # our own columns


class KnownRank(NamedTuple):
    """What a writer remembers of a rank: what is held, and the steps of the unfinished block."""

    extent: Extent
    pending: tuple[StepRecord, ...]


def read_extents(db: sqlite3.Connection) -> dict[int, Extent]:
    """What an earlier writer held of each rank, and of the units.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    marks: dict[int, dict[int, tuple[int, int]]] = {}
    for rank, level, head, low in db.execute("SELECT rank, level, head, low FROM held"):
        marks.setdefault(rank, {})[level] = (head, low)
    found = {}
    for rank, first, last in db.execute("SELECT rank, first_step, last_step FROM extents").fetchall():
        levels = [marks.get(rank, {}).get(level, (0, 0)) for level in range(TOP_LEVEL)]
        found[rank] = Extent(first, last, tuple(head for head, _ in levels), tuple(low for _, low in levels))
    return found


def read(db: sqlite3.Connection, extents: Mapping[int, Extent]) -> dict[int, KnownRank]:
    """What an earlier writer knew of each rank.

    Raises:
        sqlite3.Error: The database cannot be read.
        DamagedContent: A step was not written by us.
    """
    found = {}
    for rank, extent in extents.items():
        keys = (step_key(rank, complete_until(1, extent.last_step) + 1), step_key(rank, extent.last_step))
        pending = tuple([step_record(rank, row) for row in db.execute(_SELECT_STEPS, keys)])
        if any(min(step.period_ns, *[ns or 0 for ns in step.phase_ns]) < 0 for step in pending):
            raise DamagedContent("a step of less than no time")
        found[rank] = KnownRank(extent, pending)
    return found


def add_steps(  # the rank, its steps and the limits they come under
    db: sqlite3.Connection,
    rank: int,
    steps: Sequence[StepRecord],
    *,
    known: Optional[KnownRank],
    plan: Plan,
    max_raw: int,
) -> KnownRank:
    """Stores the steps behind the last known one; what is known of the rank then.

    Args:
        db: Inside a transaction.
        rank: Whose steps.
        steps: At least one, in any order; known ones and repetitions are passed over.
        known: What was known before; None: this rank is new.
        plan: How much is kept.
        max_raw: Of more new steps than this, only so many are kept one by one: there is no room for more in the log.
    """
    new = _after(steps, known.extent.last_step if known else 0)
    if not new:
        assert known is not None
        return known
    before = known.extent if known else retention.new_extent(new[0].step)._replace(last_step=0)
    last_step = new[-1].step
    blocks, pending = [], []
    for index, group in groupby([*(known.pending if known else ()), *new], key=lambda s: (s.step - 1) // SPANS[1]):
        members = list(group)
        if (index + 1) * SPANS[1] <= last_step:
            blocks.append((block_key(rank, 1, members[0].step), *block_of_steps(members)))
        else:
            pending = members
    kept = extent = before._replace(last_step=last_step)
    is_further = complete_until(1, last_step) > complete_until(1, before.last_step)
    if is_further or known is None or len(new) > max_raw:  # what is held changes with a whole block only
        db.executemany(INSERT_BLOCK, blocks)
        extent = retention.combine(db, rank, extent, last_step_before=before.last_step)
        kept = retention.trimmed(extent, plan, max_raw=max_raw if len(new) > max_raw else None)
        retention.drop(db, rank, old=extent, new=kept)
    _insert(db, [step_row(s) for s in new if s.step > kept.low[0] or s.step <= kept.head[0]])
    put_extent(db, rank, old=known.extent if known else None, new=kept)
    return KnownRank(kept, tuple(pending))


def _insert(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Puts rows of steps in, in order, neighbours with the same columns together.

    Python asks for an adapter of each None that it binds: ten of them cost more than all the rest of a row.
    """
    for absent, alike in groupby(rows, key=lambda row: tuple(map(is_, row, repeat(None)))):
        db.executemany(insert_step(absent), [[value for value in row if value is not None] for row in alike])


def apply_plan(db: sqlite3.Connection, rank: int, known: KnownRank, *, plan: Plan) -> KnownRank:
    """Drops what a more frugal plan no longer holds of a rank; what is known of it then."""
    extent = retention.trimmed(known.extent, plan)
    retention.drop(db, rank, old=known.extent, new=extent)
    if plan.is_early:
        extent = retention.fold_early(db, rank, extent)
    put_extent(db, rank, old=known.extent, new=extent)
    return known._replace(extent=extent)


def put_extent(db: sqlite3.Connection, rank: int, *, old: Optional[Extent], new: Extent) -> None:
    """Stores what is held of a rank, where that has changed."""
    db.execute("INSERT OR REPLACE INTO extents VALUES (?, ?, ?)", (rank, new.first_step, new.last_step))
    if old is None or (old.head, old.low) != (new.head, new.low):
        rows = [(rank, level, new.head[level], new.low[level]) for level in range(TOP_LEVEL)]
        db.executemany("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?)", rows)


def _after(steps: Sequence[StepRecord], last_step: int) -> Sequence[StepRecord]:
    """The steps that are new, in order, each once."""
    if steps[0].step > last_step and all(one.step < other.step for one, other in zip(steps, steps[1:])):
        return steps
    new: dict[int, StepRecord] = {}
    for step in steps:
        if step.step > last_step:
            new.setdefault(step.step, step)
    return [new[number] for number in sorted(new)]
