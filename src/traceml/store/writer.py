"""Appends what was recorded to the run's database, one transaction a call, and keeps it under its cap."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Iterable, Iterator, Mapping, NamedTuple, Optional

from traceml.schema.struct import to_plain
from traceml.store import opening, ranks, samples, units
from traceml.store.events import add_events, storable
from traceml.store.opening import StoreFull
from traceml.store.packing import DamagedContent
from traceml.store.ranks import KnownRank
from traceml.store.retention import PLANS
from traceml.store.tables import OF_AN_ATTEMPT, PAGE_BYTES, SPANS
from traceml.store.units import ALL_RANKS, KnownUnits

if TYPE_CHECKING:
    from pathlib import Path

    from traceml.schema.attempts import Attempt
    from traceml.schema.records import (
        DeviceSample,
        Event,
        HostSample,
        LiveSlot,
        MemoryReading,
        ProcessSample,
        RankState,
        RunEnd,
        Segment,
        StepRecord,
    )
    from traceml.schema.syncs import LedgerState, UnitSums

__all__ = ["MAX_BYTES", "StoreFull", "StoreWriter"]

MAX_BYTES: Final = 64 << 20
_LOG_SHARE: Final = 4  # a quarter of the cap is the write-ahead log's
_STEP_BYTES: Final = 150  # of one raw step, at most
_REGION_BYTES: Final = 8  # and of each of its regions
_DEVICE_BYTES: Final = 64  # and of its times on the device's clock
_SECONDS_TO_LEAVE: Final = 2.0  # close() waits so long for readers that are just reading


class _Memory(NamedTuple):
    """What the writer remembers between two appends; a failed append leaves the old one in place."""

    ranks: dict[int, KnownRank]
    num_rows: dict[str, int]  # of each table of samples, and of events
    plan: int  # index in PLANS
    units: Optional[KnownUnits] = None


class StoreWriter:
    """The one writer of a run's database. Used from one thread.

    The file and its log together stay under `max_bytes` for any number of steps, as long as that leaves about 256 KB
    for each rank. A rank's first 2,048 steps and its newest (16,384 at best) are kept one by one, all others in blocks
    of 64, 1,024, 16,384 ... steps: the nearer to either end, the finer. Appending costs about 15 us a step.

    Args:
        path: The database; it is created with its folder (0600, 0700), or opened to go on.
        max_bytes: The cap.

    Raises:
        StoreFull: `disk-full`: it cannot be written there.
        RunError: `foreign-database`, `database-too-new`, `damaged-database`.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._is_stuck = False
        if not opening.is_there(path):
            opening.create(path)
        self._path = path
        self._db = opening.open_to_write(path)
        try:
            self._memory = self._remember()
        except (sqlite3.Error, DamagedContent, TypeError, ValueError) as error:
            self._db.close()
            raise opening.damaged(path, str(error)) from None

    @property
    def path(self) -> Path:
        """Where the database is now."""
        return self._path

    def append(  # noqa: PLR0913  # one transaction holds everything that belongs together
        self,
        *,
        steps: Iterable[StepRecord] = (),
        segments: Iterable[Segment] = (),
        events: Iterable[Event] = (),
        memory: Iterable[MemoryReading] = (),
        processes: Iterable[ProcessSample] = (),
        host: Iterable[HostSample] = (),
        devices: Iterable[DeviceSample] = (),
        states: Iterable[RankState] = (),
        live: Optional[Iterable[LiveSlot]] = None,
        cursors: Mapping[str, str] = {},
        notes: Mapping[str, str] = {},
        units: Iterable[UnitSums] = (),
        ledger: Optional[LedgerState] = None,
    ) -> None:
        """Stores all of it, or nothing.

        Args:
            steps: Finished steps of any ranks. Those up to the last known step of their rank are passed over.
            segments: Startups and tails; one with the same start replaces the earlier one.
            events: At most 10,000 are kept, the newest and the longest.
            memory: Thinned out when there are many, like the next three (see store/samples.py).
            processes: One row a rank and moment.
            host: One row a moment.
            devices: One row a device and moment.
            states: The newest state of each rank that is given.
            live: What all ranks are doing now; replaces all earlier slots. None leaves them as they are.
            cursors: How far each ring has been read, by the ring's file name.
            notes: A sentence each, by a stable name.
            units: What the ranks did between two syncs, in order. Those up to the last known one are passed over.
            ledger: How far the ledger that gave them has come.

        Raises:
            StoreFull: `disk-full`: nothing of this call was stored; the writer can go on, here or elsewhere.
            RunError: `damaged-database` or `database-busy`, nothing was stored.
        """
        self._free_the_log()
        with self._transaction() as draft:
            self._add_steps(draft, steps)
            self._add_samples(draft, {"memory": memory, "processes": processes, "host": host, "devices": devices})
            draft.num_rows["events"] = add_events(
                self._db, events, num_rows=draft.num_rows["events"], max_rows=self._max_rows(10_000)
            )
            self._add_rows(segments=segments, states=states, live=live, cursors=cursors, notes=notes)
            filled = self._add_units(draft, units)
            if ledger is not None:
                self._put_meta("ledger", _text(ledger))
            self._memory = self._fit(filled)
        self._shorten_the_log()

    def put_end(self, end: RunEnd) -> None:
        """Stores how the run ended; a later end replaces it.

        Raises:
            StoreFull: `disk-full`: it was not stored.
            RunError: `damaged-database` or `database-busy`, it was not stored.
        """
        with self._transaction():
            self._put_meta("end", json.dumps(to_plain(end)))

    def begin_attempt(self, ended: Attempt) -> None:
        """The ranks were started again: what was stored of them goes, and the attempt that ended is remembered.

        Samples of host and devices, cursors and notes stay. A step of the new attempt is never taken for an old one.

        Raises:
            StoreFull: `disk-full`: nothing has changed.
            RunError: `damaged-database` or `database-busy`, nothing has changed.
        """
        with self._transaction() as draft:
            for table in OF_AN_ATTEMPT:
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608  # a table of ours
            self._db.execute("DELETE FROM meta WHERE name IN ('ledger', 'plan')")
            self._db.execute("INSERT OR REPLACE INTO attempts VALUES (?, ?)", (ended.number, _text(ended)))
            num_rows = {**draft.num_rows, "memory": 0, "processes": 0, "events": 0}
            self._memory = _Memory({}, num_rows, 0)

    def add_attempts(self, ended: Iterable[Attempt]) -> None:
        """Remembers attempts that ended before their first step; raises what `begin_attempt` does."""
        with self._transaction():
            rows = [(attempt.number, _text(attempt)) for attempt in ended]
            self._db.executemany("INSERT OR IGNORE INTO attempts VALUES (?, ?)", rows)

    def cursors(self) -> dict[str, str]:
        """How far each ring has been read: ring file name -> cursor text.

        Raises:
            RunError: `damaged-database`.
        """
        try:
            return dict(self._db.execute("SELECT name, cursor FROM cursors").fetchall())
        except sqlite3.Error as error:
            raise opening.refusal(error, self._path) from None

    def move_to(self, path: Path) -> None:
        """Copies the database to another place and goes on writing there. The old file stays as it is.

        Args:
            path: The new database; a file that is there is replaced.

        Raises:
            StoreFull: `disk-full`: there is no room there either; the writer stays where it was.
            RunError: `damaged-database`: the old one cannot be read.
        """
        self.copy_to(path)
        try:
            db = opening.open_to_write(path)
        except (OSError, sqlite3.Error) as error:
            raise opening.refusal(error, path) from None
        self._db.close()
        self._db, self._path, self._is_stuck = db, path, False

    def copy_to(self, path: Path) -> None:
        """Puts a whole copy of the database, as of now, in another place; a file that is there is replaced at once.

        Raises:
            StoreFull: `disk-full`: there is no room there.
            RunError: `damaged-database`: this one cannot be read.
        """
        neighbour = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            opening.make_folder(path.parent)
            opening.make_private(neighbour)
            with closing(sqlite3.connect(str(neighbour))) as copy:
                self._db.backup(copy)
            for suffix in ("-wal", "-shm"):  # of a file that was there before
                with suppress(FileNotFoundError):
                    path.with_name(path.name + suffix).unlink()
            neighbour.replace(path)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                neighbour.unlink()
            if isinstance(error, sqlite3.Error):
                raise opening.refusal(error, path) from None
            raise StoreFull(f"Cannot write '{path}' ({error.strerror}). Make room there.", slug="disk-full") from None

    def close(self) -> None:
        """Leaves one plain file, which a read-only folder can hold. Closing again does nothing.

        Where readers hold the file for longer than 2 s, or there is no room, its log stays beside it; nothing is lost.
        """
        deadline = time.monotonic() + _SECONDS_TO_LEAVE
        with suppress(sqlite3.Error):  # whatever cannot be folded in stays in the log, which readers read too
            self._db.execute("PRAGMA busy_timeout=100")
            while self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] and time.monotonic() < deadline:
                pass
        while time.monotonic() < deadline:
            try:
                self._db.execute("PRAGMA journal_mode=DELETE").fetchall()
                break
            except sqlite3.ProgrammingError:  # closed already
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    break
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[_Memory]:
        old = self._memory
        draft = _Memory(dict(old.ranks), dict(old.num_rows), old.plan, old.units)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield draft
            self._db.execute("COMMIT")
        except BaseException as error:  # also Ctrl-C: nothing stays half written
            self._memory = old
            with suppress(sqlite3.Error):  # SQLite has rolled back already when the disk was full
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise opening.refusal(error, self._path) from None
            if isinstance(error, (DamagedContent, UnicodeDecodeError)):
                raise opening.damaged(self._path, str(error)) from None
            raise

    def _remember(self) -> _Memory:
        num_rows = {table.name: table.count(self._db) for table in samples.SAMPLE_TABLES}
        num_rows["events"] = int(self._db.execute("SELECT count(*) FROM events").fetchone()[0])
        plan = self._db.execute("SELECT value FROM meta WHERE name = 'plan'").fetchone()
        extents = ranks.read_extents(self._db)
        known_units = units.read(self._db, extents.pop(ALL_RANKS, None))
        known_ranks = ranks.read(self._db, extents)
        return _Memory(known_ranks, num_rows, min(int(plan[0]), len(PLANS) - 1) if plan else 0, known_units)

    def _add_steps(self, draft: _Memory, steps: Iterable[StepRecord]) -> None:
        given = list(steps)
        if not given:
            return
        by_rank: dict[int, list[StepRecord]] = {}
        for rank, stretch in groupby(given, key=lambda step: step.rank):
            by_rank.setdefault(rank, []).extend(stretch)
        file_bytes = self._num_pages("page_count") * PAGE_BYTES
        # What is new stands in the log and, after the checkpoint, in the file as well, until the log is cut.
        room = max(self._max_bytes - file_bytes, 0) // 4
        step_bytes = _STEP_BYTES + _REGION_BYTES * max(len(own[-1].region_ns) for own in by_rank.values())
        step_bytes += _DEVICE_BYTES * any(own[-1].device is not None for own in by_rank.values())
        max_raw = max(room // step_bytes // len(by_rank), SPANS[1])
        for rank, own in by_rank.items():
            draft.ranks[rank] = ranks.add_steps(
                self._db, rank, own, known=draft.ranks.get(rank), plan=PLANS[draft.plan], max_raw=max_raw
            )

    def _add_units(self, draft: _Memory, given: Iterable[UnitSums]) -> _Memory:
        known = units.add_units(self._db, list(given), known=draft.units, plan=PLANS[draft.plan])
        self._put_units_extent(draft.units, known)
        return draft._replace(units=known)

    def _put_units_extent(self, old: Optional[KnownUnits], new: Optional[KnownUnits]) -> None:
        if new is not None and new is not old:
            ranks.put_extent(self._db, ALL_RANKS, old=old.extent if old else None, new=new.extent)

    def _add_samples(self, draft: _Memory, given: Mapping[str, Iterable[Any]]) -> None:
        limit = self._max_rows(16_384)
        for table in samples.SAMPLE_TABLES:
            num_rows = draft.num_rows[table.name] + table.insert(self._db, given[table.name])
            draft.num_rows[table.name] = table.thin(self._db, limit) if num_rows > limit else num_rows

    def _max_rows(self, at_best: int) -> int:
        return max(min(at_best, self._max_bytes // PAGE_BYTES), 16)

    def _add_rows(
        self,
        *,
        segments: Iterable[Segment],
        states: Iterable[RankState],
        live: Optional[Iterable[LiveSlot]],
        cursors: Mapping[str, str],
        notes: Mapping[str, str],
    ) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?)",
            [(segment.rank, segment.kind, segment.start_ns, _text(segment)) for segment in segments],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO states VALUES (?, ?)", [(state.identity.rank, _text(state)) for state in states]
        )
        if live is not None:
            self._db.execute("DELETE FROM live")
            self._db.executemany(
                "INSERT OR REPLACE INTO live VALUES (?, ?)", [(slot.rank, _text(slot)) for slot in live]
            )
        self._db.executemany("INSERT OR REPLACE INTO cursors VALUES (?, ?)", list(cursors.items()))
        self._db.executemany(
            "INSERT OR REPLACE INTO notes VALUES (?, ?)", [(name, storable(text)) for name, text in notes.items()]
        )

    def _put_meta(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def _fit(self, draft: _Memory) -> _Memory:
        """Takes more frugal plans until the file fits into its part of the cap."""
        max_pages = (self._max_bytes - self._max_bytes // _LOG_SHARE) // PAGE_BYTES
        plan = draft.plan
        while self._num_pages("page_count") - self._num_pages("freelist_count") > max_pages:
            plan = min(plan + 1, len(PLANS) - 1)
            draft = self._apply(draft, plan)
            if plan == len(PLANS) - 1:  # nothing more can be given up
                break
        if plan != draft.plan:
            self._put_meta("plan", str(plan))
        for _ in range(self._num_pages("page_count") - max_pages):
            self._db.execute("PRAGMA incremental_vacuum(1)")  # a page a call: Python steps it only once
        return draft._replace(plan=plan)

    def _apply(self, draft: _Memory, plan: int) -> _Memory:
        for rank, known in list(draft.ranks.items()):
            draft.ranks[rank] = ranks.apply_plan(self._db, rank, known, plan=PLANS[plan])
        if draft.units is None:
            return draft
        fewer = units.apply_plan(self._db, draft.units, plan=PLANS[plan])
        self._put_units_extent(draft.units, fewer)
        return draft._replace(units=fewer)

    def _num_pages(self, which: str) -> int:
        return int(self._db.execute(f"PRAGMA {which}").fetchone()[0])

    def _free_the_log(self) -> None:
        """Raises StoreFull when the last checkpoint failed and fails again: before anything new is stored."""
        if self._is_stuck:
            self._shorten_the_log()
        if self._is_stuck:
            raise StoreFull(f"Cannot write '{self._path}'. Make room, or give another --logs-dir.", slug="disk-full")

    def _shorten_the_log(self) -> None:
        log = self._path.with_name(self._path.name + "-wal")
        try:
            num_bytes = log.stat().st_size
        except OSError:
            num_bytes = 0
        if num_bytes < self._max_bytes // _LOG_SHARE // 8 and not self._is_stuck:
            return
        self._db.execute("PRAGMA busy_timeout=20")  # a reader that is just reading: the next append tries again
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._is_stuck = False
        except sqlite3.Error:  # what was appended is safe in the log; the next append says that there is no room
            self._is_stuck = True
        finally:
            self._db.execute("PRAGMA busy_timeout=5000")


def _text(record: object) -> str:
    return json.dumps(to_plain(record), separators=(",", ":"))
