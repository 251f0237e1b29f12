"""Keeps what was collected, and finds another place where the run folder's disk is full, read-only or far away."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Final, Mapping, Optional, Sequence

from traceml.collect.network import is_network
from traceml.errors import RunError
from traceml.schema.records import StepRecord
from traceml.store.opening import StoreFull
from traceml.store.reader import StoreReader
from traceml.store.writer import StoreWriter
from traceml.wire.manifest import FILE as MANIFEST
from traceml.wire.manifest import write_manifest

if TYPE_CHECKING:
    from traceml.collect.tail import Portion
    from traceml.schema.attempts import Attempt
    from traceml.schema.records import Manifest, RankState, RunEnd
    from traceml.schema.syncs import LedgerState

DATABASE: Final = Path("node-0") / "run.db"
_RETRY_S: Final = 5.0
_COPY_S: Final = 60.0  # between two copies into a run folder on the network


class Keeping:
    """The run's database. A full or read-only disk moves it once into a private temporary folder, and a note says so.

    On a network file system the database lies in a local folder, and is copied into the run folder every minute and at
    the end; `folder` says where it is at the moment.

    Args:
        folder: The run folder, or where an earlier collector of this run has moved it.
        home: The run folder.
        manifest: Goes with the database, so that the new place is a run folder, too.
        max_bytes: The database's cap.
        noted: Called with each new note, after a move.

    Raises:
        RunError: There is a database already, and it is not ours, too new or damaged; or no place has room.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        max_bytes: int,
        noted: Callable[[str], None],
        home: Optional[Path] = None,
    ) -> None:
        self.folder = folder
        self._manifest, self._noted = manifest, noted
        self._has_moved = False
        self._num_dropped = 0
        self._retry_at = 0.0
        self._states: dict[int, RankState] = {}  # those that are stored
        self._copy_at = time.monotonic() + _COPY_S
        home = folder if home is None else home
        self._home = home if is_network(home) else None
        if self._home == folder:
            self.folder = folder = self._elsewhere()
            self._has_moved = False
        try:
            self._store = StoreWriter(folder / DATABASE, max_bytes=max_bytes)
        except StoreFull as error:
            self.folder = self._elsewhere()
            self._store = StoreWriter(self.folder / DATABASE, max_bytes=max_bytes)
            self._tell_move(folder, error)

    @property
    def database(self) -> Path:
        """Where the database is now."""
        return self.folder / DATABASE

    def cursors(self) -> dict[str, str]:
        """Where an earlier collector of this run stopped reading."""
        return self._store.cursors()

    def ledger(self) -> Optional[LedgerState]:
        """How far an earlier collector of this run came in aligning the ranks."""
        reader = StoreReader(self.database)
        try:
            return reader.ledger()
        finally:
            reader.close()

    def steps_from(self, rank: int, first: int) -> tuple[list[StepRecord], Mapping[int, str]]:
        """The steps of a rank that are stored one by one, from a step on, and the names of its regions."""
        reader = StoreReader(self.database)
        try:
            found = reader.window(rank, first=first, coarse=False).pieces
            regions = next((state.regions for state in reader.states() if state.identity.rank == rank), {})
            return [piece for piece in found if isinstance(piece, StepRecord)], regions
        finally:
            reader.close()

    def attempts(self) -> list[Attempt]:
        """The attempts of this run that restarts have ended."""
        reader = StoreReader(self.database)
        try:
            return reader.attempts()
        finally:
            reader.close()

    def begin_attempt(self, ended: Attempt) -> None:
        """Puts the database of an attempt that ended aside, and begins an empty one.

        Raises:
            RunError: The database cannot be written.
        """
        name = f"attempt-{ended.number}.db"
        try:
            self._store.copy_to(self.database.with_name(name))
            ended = replace(ended, file=f"{DATABASE.parent}/{name}")
        except RunError as error:
            self._noted(f"The steps of attempt {ended.number} could not be kept: {error}")
        self._store.begin_attempt(ended)
        self._states.clear()

    def add_attempts(self, ended: Sequence[Attempt]) -> None:
        """Remembers attempts that ended before their first step; where no disk takes them, they are told of as a note.

        Raises:
            RunError: The database cannot be written.
        """
        try:
            if ended:
                self._store.add_attempts(ended)
        except StoreFull:
            self._noted(f"Attempts that ended before their first step could not be kept: {len(ended)}.")

    def put(self, portions: Sequence[Portion], *, states: Sequence[RankState] = (), **more: Any) -> None:
        """Stores portions of rings with their cursors, in one transaction. States that are stored are left out."""
        self.append(
            steps=[step for portion in portions for step in portion.taken.steps],
            segments=[segment for portion in portions for segment in portion.taken.segments],
            events=[event for portion in portions for event in portion.taken.events],
            memory=[*(one for portion in portions for one in portion.memory), *more.pop("memory", ())],
            cursors={name: at for portion in portions for name, at in portion.cursors.items()},
            states=[state for state in states if self._states.get(state.identity.rank) != state],
            **more,
        )

    def append(self, **records: Any) -> None:
        """Stores records, here or elsewhere; what no disk takes is counted and told, never dropped in silence."""
        if time.monotonic() < self._retry_at:
            self._drop(records)
            return
        try:
            self._append(records)
        except StoreFull:
            self._retry_at = time.monotonic() + _RETRY_S
            self._drop(records)
        if self._home is not None and time.monotonic() >= self._copy_at:
            self._copy_at = time.monotonic() + _COPY_S
            self._copy_home()

    def put_end(self, end: RunEnd) -> None:
        """Stores how the run ended.

        Raises:
            StoreFull: No disk takes it.
        """
        try:
            self._store.put_end(end)
        except StoreFull as error:
            self._move(error)
            self._store.put_end(end)

    def put_late_end(self, end: RunEnd) -> None:
        """Stores what became known of the end after `close`.

        Raises:
            RunError: The database cannot be opened again, or written.
        """
        store = StoreWriter(self.database)
        store.put_end(end)
        store.close()

    def close(self) -> None:
        """Leaves one plain file."""
        if self._num_dropped:
            self._noted(f"{self._num_dropped} steps were not kept: no disk had room for them.")
        is_home = self._home is not None and self._copy_home()
        self._store.close()
        if is_home and self._home is not None:
            before, self.folder = self.folder, self._home
            _remove(before)

    def _copy_home(self) -> bool:
        """Copies the database into the run folder on the network; whether that went well."""
        assert self._home is not None
        try:
            self._store.copy_to(self._home / DATABASE)
            for aside in self.database.parent.glob("attempt-*.db"):
                if not (self._home / DATABASE).with_name(aside.name).exists():
                    shutil.copyfile(aside, (self._home / DATABASE).with_name(aside.name))
        except (RunError, OSError) as error:
            self._noted(f"The database could not be copied to '{self._home}': {error}")
            return False
        return True

    def _append(self, records: dict[str, Any]) -> None:
        try:
            self._store.append(**records)
        except StoreFull as error:
            self._move(error)
            self._store.append(**records)
        self._states.update({state.identity.rank: state for state in records.get("states", ())})

    def _move(self, error: StoreFull) -> None:
        """Goes on elsewhere, once: a second full disk is the error's to tell."""
        if self._has_moved:
            raise error
        self._has_moved = True
        before, folder = self.folder, self._elsewhere()
        self._store.move_to(folder / DATABASE)
        self.folder = folder
        self._tell_move(before, error)

    def _elsewhere(self) -> Path:
        self._has_moved = True
        folder = Path(tempfile.mkdtemp(prefix="traceml-")) / self._manifest.name
        folder.mkdir(mode=0o700)
        write_manifest(folder, self._manifest)
        return folder

    def _tell_move(self, before: Path, error: StoreFull) -> None:
        reason = str(error).partition("(")[2].partition(")")[0] or "no room"
        self._noted(f"'{before}' cannot be written ({reason}); this run is kept in '{self.folder}'.")

    def _drop(self, records: dict[str, Any]) -> None:
        self._num_dropped += len(records.get("steps", ()))


def _remove(folder: Path) -> None:
    """Removes a local stand-in for a run folder: the files we put there, and what is empty then."""
    database = folder / DATABASE
    for name in (
        *database.parent.glob("attempt-*.db"),
        database,
        database.with_name("run.db-wal"),
        database.with_name("run.db-shm"),
        folder / MANIFEST,
    ):
        name.unlink(missing_ok=True)
    with suppress(OSError):  # somebody else's files are in there: it stays
        for empty in (database.parent, folder, folder.parent):
            empty.rmdir()
