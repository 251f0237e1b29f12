"""Lays out the run's database: its tables, their keys and the statements that fill them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from traceml.schema.phases import PHASES

#: "TrML": a file with another one is not ours.
APPLICATION_ID: Final = 0x54724D4C
#: `user_version`. The order of `phases.PHASES` is part of the format: a change of it raises this number.
#: Version 2 added `steps.device`, 3 `steps.sync` and what the ranks share, 4 `processes.run_delay_ns`.
VERSION: Final = 4
PAGE_BYTES: Final = 4096

_STEP_BITS: Final = 40
_INDEX_BITS: Final = 36
_STEP_MASK: Final = (1 << _STEP_BITS) - 1

#: Steps in one piece of each level: level 0 is a raw step, level 1 a block of 64, each higher one 16 times coarser.
SPANS: Final[tuple[int, ...]] = (1, *(64 * 16**power for power in range(7)))
TOP_LEVEL: Final = len(SPANS) - 1

_PHASE_COLUMNS: Final = tuple(f"{name}_ns" for name in PHASES)
STEP_COLUMNS: Final = (
    "key",
    "end_ns",
    "period_ns",
    *_PHASE_COLUMNS,
    "regions",
    "epoch_start_ns",
    "num_micro_batches",
    "num_optimizer_steps",
    "num_samples",
    "num_tokens",
    "user_step",
    "failed_in",
    "device",
    "sync",
)
BLOCK_COLUMNS: Final = (
    "key",
    "first_step",
    "last_step",
    "num_steps",
    "num_failed",
    "start_ns",
    "end_ns",
    "num_micro_batches",
    "num_optimizer_steps",
    "num_samples",
    "num_tokens",
    "body",
)

#: Of all ranks together: what lies between two syncs, by the step that ends it; and attempts that a restart ended.
_RANK_DDL: Final = (
    "CREATE TABLE units (key INTEGER PRIMARY KEY, body)",
    "CREATE TABLE unit_blocks (key INTEGER PRIMARY KEY, first_step, last_step, body)",
    "CREATE TABLE unit_regions (number INTEGER PRIMARY KEY, name TEXT NOT NULL)",
    "CREATE TABLE attempts (number INTEGER PRIMARY KEY, body TEXT NOT NULL)",
)
DDL: Final[tuple[str, ...]] = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # the keys are those of step_key() and block_key()
    f"CREATE TABLE steps (key INTEGER PRIMARY KEY, {', '.join(STEP_COLUMNS[1:])})",
    f"CREATE TABLE blocks (key INTEGER PRIMARY KEY, {', '.join(BLOCK_COLUMNS[1:])})",
    *_RANK_DDL,
    "CREATE TABLE extents (rank INTEGER PRIMARY KEY, first_step, last_step)",
    # pieces of a level are held up to step `head`, and after step `low`
    "CREATE TABLE held (rank, level, head, low, PRIMARY KEY (rank, level)) WITHOUT ROWID",
    "CREATE TABLE cursors (name TEXT PRIMARY KEY, cursor TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE states (rank INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    "CREATE TABLE live (rank INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    "CREATE TABLE segments (rank, kind, start_ns, body TEXT NOT NULL, PRIMARY KEY (rank, kind, start_ns))",
    "CREATE TABLE events (id INTEGER PRIMARY KEY, kind, rank, step, at_ns, duration_ns, count, text)",
)

#: What is of one attempt of the ranks, and goes when they are started again.
OF_AN_ATTEMPT: Final = (
    *("steps", "blocks", "units", "unit_blocks", "unit_regions", "extents", "held"),
    *("states", "live", "segments", "events", "memory", "processes"),
)


def insert_into(table: str, num_columns: int) -> str:
    """The statement that puts a whole row into a table of ours, in the place of one with the same key."""
    marks = ",".join("?" * num_columns)
    return f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608  # table is a name of this package


#: What a writer does to a database of an older version, and a reader in its own memory: the columns and tables it has
#: not.
_WITH_DELAY: Final = "ALTER TABLE processes ADD COLUMN run_delay_ns"
_WITH_SYNC: Final = ("ALTER TABLE steps ADD COLUMN sync", *_RANK_DDL, _WITH_DELAY)
UPGRADE: Final[dict[int, tuple[str, ...]]] = {
    1: ("ALTER TABLE steps ADD COLUMN device", *_WITH_SYNC),
    2: _WITH_SYNC,
    3: (_WITH_DELAY,),
}
_VIEW_DELAY: Final = "CREATE TEMP VIEW processes AS SELECT *, NULL AS run_delay_ns FROM main.processes"
_AS_NEW: Final = (*(statement.replace("TABLE", "TEMP TABLE", 1) for statement in _RANK_DDL), _VIEW_DELAY)
READ_AS_NEW: Final[dict[int, tuple[str, ...]]] = {
    1: ("CREATE TEMP VIEW steps AS SELECT *, NULL AS device, NULL AS sync FROM main.steps", *_AS_NEW),
    2: ("CREATE TEMP VIEW steps AS SELECT *, NULL AS sync FROM main.steps", *_AS_NEW),
    3: (_VIEW_DELAY,),
}

INSERT_BLOCK: Final = insert_into("blocks", len(BLOCK_COLUMNS))


@lru_cache(maxsize=64)
def insert_step(absent: tuple[bool, ...]) -> str:
    """The statement that puts a step in whose columns are NULL where `absent` says so; the others are to be given."""
    marks = ",".join(["NULL" if is_absent else "?" for is_absent in absent])
    return f"INSERT OR REPLACE INTO steps VALUES ({marks})"  # noqa: S608  # marks are ours


def step_key(rank: int, step: int) -> int:
    """The key of a raw step; the keys of a rank's steps follow each other."""
    return rank << _STEP_BITS | step


def step_of(key: int) -> int:
    """The step a raw step's key speaks of."""
    return key & _STEP_MASK


def block_key(rank: int, level: int, step: int) -> int:
    """The key of the block of a level that holds the step."""
    return rank << _STEP_BITS | level << _INDEX_BITS | (step - 1) // SPANS[level]
