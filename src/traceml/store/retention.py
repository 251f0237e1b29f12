"""Decides what is kept: the first steps and the newest finely, the rest in ever coarser blocks, within the cap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple, Optional, Sequence

from traceml.store.cover import NUM_FIRST_STEPS, Extent, complete_until
from traceml.store.levels import BlockRow, block_of_blocks
from traceml.store.tables import BLOCK_COLUMNS, SPANS, TOP_LEVEL, block_key, insert_into, step_key

if TYPE_CHECKING:
    import sqlite3


class Shelf(NamedTuple):
    """Two tables that hold one kind of thing by step: one by one, and in the blocks of all levels.

    `merge` makes the row of a coarser block of the rows of some neighbouring ones, without keys.
    """

    raw: str
    blocks: str
    columns: tuple[str, ...]  # of a block, the first one being its first step
    merge: Callable[[Sequence[tuple[Any, ...]]], tuple[Any, ...]]


def _merge_steps(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return block_of_blocks(list(map(BlockRow._make, rows)))


STEPS: Final = Shelf("steps", "blocks", BLOCK_COLUMNS[1:], _merge_steps)


class Plan(NamedTuple):
    """How many pieces of a rank are kept at least, the newest of each level, and how many raw steps from its start."""

    num_first: int
    num_steps: int  # raw
    num_blocks: int  # level 1
    num_coarse: int  # each higher level
    is_early: bool = False  # fold blocks into coarser ones before those are complete


#: From generous to frugal. The writer takes the next one whenever the file has reached its cap, for all ranks at once.
PLANS: Final = (
    Plan(NUM_FIRST_STEPS, 16_384, 512, 128),
    Plan(NUM_FIRST_STEPS, 8_192, 512, 64),
    Plan(NUM_FIRST_STEPS, 4_096, 256, 64),
    Plan(NUM_FIRST_STEPS, 2_048, 256, 32),
    Plan(NUM_FIRST_STEPS, 1_024, 128, 32),
    Plan(1_024, 1_024, 64, 16),
    Plan(512, 512, 32, 16),
    Plan(256, 128, 16, 8),
    Plan(0, 0, 0, 0),
    Plan(0, 0, 0, 0, is_early=True),
)


def new_extent(step: int) -> Extent:
    """The extent of a rank whose first step this is."""
    return Extent(step, step, _heads(PLANS[0]), (0,) * TOP_LEVEL)


def trimmed(extent: Extent, plan: Plan, *, max_raw: Optional[int] = None) -> Extent:
    """What of a rank shall be held under a plan; never more than was held before.

    Args:
        extent: What is held now, all its complete blocks being written.
        plan: How much shall be kept.
        max_raw: The newest raw steps that may be kept where that is less than the plan says.
    """
    num_raw = plan.num_steps if max_raw is None else min(plan.num_steps, max_raw)
    kept = (num_raw, plan.num_blocks, *(plan.num_coarse,) * (TOP_LEVEL - 2))
    low = []
    for level in range(TOP_LEVEL):
        wanted = complete_until(level + 1, max(extent.last_step - kept[level] * SPANS[level], 0))
        low.append(max(extent.low[level], wanted))
    head = tuple(min(old, new) for old, new in zip(extent.head, _heads(plan)))
    return extent._replace(head=head, low=tuple(low))


def _heads(plan: Plan) -> tuple[int, ...]:
    # The first steps stand inside the first block of every level: its other children must be held as well.
    if not plan.num_first:
        return (0,) * TOP_LEVEL
    return tuple(-(-plan.num_first // SPANS[level + 1]) * SPANS[level + 1] for level in range(TOP_LEVEL))


def drop(db: sqlite3.Connection, rank: int, *, old: Extent, new: Extent, shelf: Shelf = STEPS) -> None:
    """Deletes what the new extent no longer holds."""
    for level in range(TOP_LEVEL):
        if old.low[level] < new.low[level]:
            _delete(db, rank, level, after=max(old.low[level], new.head[level]), until=new.low[level], shelf=shelf)
        if new.head[level] < old.head[level]:
            until = min(old.head[level], new.low[level])
            _delete(db, rank, level, after=new.head[level], until=until, shelf=shelf)


def _delete(db: sqlite3.Connection, rank: int, level: int, *, after: int, until: int, shelf: Shelf) -> None:
    if after >= until:
        return
    if level == 0:
        table, keys = shelf.raw, (step_key(rank, after + 1), step_key(rank, until))
    else:
        table, keys = shelf.blocks, (block_key(rank, level, after + 1), block_key(rank, level, until))
    db.execute(f"DELETE FROM {table} WHERE key BETWEEN ? AND ?", keys)  # noqa: S608  # a table of ours


def combine(
    db: sqlite3.Connection, rank: int, extent: Extent, *, last_step_before: int, shelf: Shelf = STEPS
) -> Extent:
    """Writes the coarser blocks that became complete since `last_step_before`; the extent after that.

    Where a part of such a block had been folded early, the rest of its children go too: a level holds whole groups.
    """
    low = list(extent.low)
    for level in range(1, TOP_LEVEL):
        done = complete_until(level + 1, last_step_before)
        until = complete_until(level + 1, extent.last_step)
        if until <= done:
            break
        _write_parents(db, rank, level, after=max(done, low[level]), until=until, shelf=shelf)
        if low[level] > done:
            _delete(db, rank, level, after=low[level], until=done + SPANS[level + 1], shelf=shelf)
            low[level] = max(low[level], done + SPANS[level + 1])
    return extent._replace(low=tuple(low))


def fold_early(db: sqlite3.Connection, rank: int, extent: Extent, *, shelf: Shelf = STEPS) -> Extent:
    """Folds every complete block into the coarser one around it, complete or not; the extent after that."""
    low = list(extent.low)
    for level in range(1, TOP_LEVEL):
        until = complete_until(level, extent.last_step)
        after = max(low[level], complete_until(level + 1, extent.last_step))
        if after < until:
            _write_parents(db, rank, level, after=after, until=until, shelf=shelf)
        if low[level] < until:
            _delete(db, rank, level, after=low[level], until=until, shelf=shelf)
            low[level] = until
    return extent._replace(low=tuple(low))


def _write_parents(db: sqlite3.Connection, rank: int, level: int, *, after: int, until: int, shelf: Shelf) -> None:
    """Merges the blocks of a level in (after, until] into those one level higher, which may hold a part already."""
    children: dict[int, list[tuple[Any, ...]]] = {}
    select = f"SELECT {', '.join(shelf.columns)} FROM {shelf.blocks} WHERE key BETWEEN ? AND ? ORDER BY key"  # noqa: S608  # our own columns
    keys = (block_key(rank, level, after + 1), block_key(rank, level, until))
    for row in db.execute(select, keys):
        children.setdefault(block_key(rank, level + 1, row[0]), []).append(row)
    insert = insert_into(shelf.blocks, len(shelf.columns) + 1)
    for key, rows in children.items():
        part = db.execute(select, (key, key)).fetchall()
        db.execute(insert, (key, *shelf.merge([*part, *rows])))
