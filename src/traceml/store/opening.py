"""Opens the run's database to write or to read it, and refuses files that are not ours in one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Optional

from traceml.errors import RunError
from traceml.store.samples import SAMPLE_TABLES
from traceml.store.tables import APPLICATION_ID, DDL, PAGE_BYTES, READ_AS_NEW, UPGRADE, VERSION
from traceml.wire.regular import open_regular

_MAGIC: Final = b"SQLite format 3\x00"
_PATIENCE_S: Final = 5.0  # for another process's lock; ours are held for milliseconds
_NO_ROOM: Final = ("full", "readonly", "read-only", "disk i/o", "unable to open", "too big", "no space")


class StoreFull(RunError):  # noqa: N818  # reads aloud where it is caught
    """The database cannot be written: no room, no right, or an I/O error. Nothing was half written."""


def refusal(error: Exception, path: Path) -> RunError:
    """Our own error for what SQLite said while writing: StoreFull, `database-busy` or `damaged-database`."""
    said = str(error).lower()
    if any(word in said for word in _NO_ROOM):
        return StoreFull(f"Cannot write '{path}' ({error}). Make room, or give another --logs-dir.", slug="disk-full")
    return _unreadable(error, path)


def _unreadable(error: Exception, path: Path) -> RunError:
    if "locked" in str(error).lower():
        return RunError(f"Database '{path}' is locked by another process. Try again.", slug="database-busy")
    return damaged(path, str(error))


def damaged(path: Path, what: str) -> RunError:
    """The error for a database of ours whose content cannot be believed."""
    return RunError(f"Database '{path}' is damaged ({what}). Give another run.", slug="damaged-database")


def is_there(path: Path) -> bool:
    """Whether there is a file; one behind a folder that we may not enter is not there for us."""
    try:
        return path.exists()
    except OSError:
        return False


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it that are missing, 0700; leaves those that are there as they are."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def create(path: Path) -> None:
    """Makes an empty database, 0600, whole or not at all: it is built beside and renamed.

    Raises:
        StoreFull: No room, or no right to write.
    """
    neighbour = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_folder(path.parent)
        make_private(neighbour)
        with closing(_connect(neighbour, "rw")) as db:
            db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            db.execute("PRAGMA auto_vacuum=INCREMENTAL")
            db.execute("BEGIN")
            for statement in (*DDL, *(table.ddl for table in SAMPLE_TABLES)):
                db.execute(statement)
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={VERSION}")
            db.execute("COMMIT")
        neighbour.replace(path)
    except (OSError, sqlite3.Error) as error:
        for name in (neighbour, neighbour.with_name(neighbour.name + "-journal")):
            with suppress(OSError):
                name.unlink()
        message = f"Cannot create '{path}' ({error}). Make room, or give another --logs-dir."
        raise StoreFull(message, slug="disk-full") from None


def make_private(path: Path) -> None:
    """Makes an empty file that only the user can read, in the place of any other.

    Raises:
        OSError: No room, or no right to write.
    """
    with suppress(FileNotFoundError):
        path.unlink()
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def open_to_write(path: Path) -> sqlite3.Connection:
    """A connection that writes; readers may come and go beside it.

    Raises:
        RunError: `foreign-database`, `database-too-new`, `damaged-database`; StoreFull when it cannot be written.
    """
    _check_file(path)
    try:
        db = _connect(path, "rw")
    except sqlite3.Error as error:
        raise refusal(error, path) from None
    try:
        version = _check_identity(db, path)
        db.execute("PRAGMA journal_mode=WAL").fetchall()
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA wal_autocheckpoint=0")  # the writer itself does it, and sees when it fails
        db.execute("PRAGMA cache_size=-4096")
        if version in UPGRADE:
            db.execute("BEGIN IMMEDIATE")
            for statement in UPGRADE[version]:
                db.execute(statement)
            db.execute(f"PRAGMA user_version={VERSION}")
            db.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        db.close()
        raise refusal(error, path) from None
    except RunError:
        db.close()
        raise
    return db


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # isolation_level None: transactions begin and end where we say so.
    uri = f"{path.absolute().as_uri()}?{mode if '=' in mode else 'mode=' + mode}"
    return sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None)


def _check_file(path: Path) -> None:
    try:
        with open_regular(path) as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        message = f"No database at '{path}' ({error.strerror}). Give the folder that `traceml run` printed."
        raise RunError(message, slug="no-database") from None
    if head != _MAGIC:
        raise damaged(path, "not an SQLite file" if head else "empty")


def _check_identity(db: sqlite3.Connection, path: Path) -> int:
    """The version of a database of ours."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        message = f"Database '{path}' was not written by TraceML. Give the folder that `traceml run` printed."
        raise RunError(message, slug="foreign-database")
    if version > VERSION:
        message = f"Database '{path}' has version {version}, this TraceML reads {VERSION}. Update TraceML."
        raise RunError(message, slug="database-too-new")
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(version)


class Source:
    """A database to read: connections one after the other, so that between two questions nothing is held open.

    Beside a writer, after it was killed (its log is read too), and from a read-only folder. Where SQLite cannot read
    the log in its place, database and log are copied into a temporary folder; where there is no room for that either,
    the log is left out and `lost` says so in one sentence.

    Raises:
        RunError: `no-database`, `foreign-database`, `database-too-new`, `damaged-database`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = ""
        self._place, self._mode = path, "mode=ro"
        self._copy: Optional[tempfile.TemporaryDirectory[str]] = None
        _check_file(path)
        try:
            self.connect().close()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._go_round(error)

    def connect(self) -> sqlite3.Connection:
        """A connection that reads.

        Raises:
            sqlite3.Error: It cannot be read; the caller knows what to say.
            RunError: It is not ours.
        """
        db = _connect(self._place, self._mode)
        try:
            version = _check_identity(db, self.path)
            if version in READ_AS_NEW:
                db.execute("PRAGMA temp_store=MEMORY")
                for statement in READ_AS_NEW[version]:
                    db.execute(statement)
        except BaseException:
            db.close()
            raise
        return db

    def translate(self, error: Exception) -> RunError:
        """Our own error for what went wrong while reading."""
        return _unreadable(error, self.path)

    def close(self) -> None:
        """Removes the copy, if one was needed."""
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def _go_round(self, error: Exception) -> None:
        said = str(error).lower()
        if "locked" in said or not any(word in said for word in _NO_ROOM):
            raise self.translate(error) from None
        for attempt in (self._use_a_copy, self._leave_the_log_out):
            try:
                attempt()
                self.connect().close()
            except (OSError, sqlite3.Error, UnicodeDecodeError):
                self.close()
                continue
            return
        raise self.translate(error) from None

    def _use_a_copy(self) -> None:
        # The owner's finalizer removes it, at the latest when the process ends.
        self._copy = tempfile.TemporaryDirectory(prefix="traceml-")
        self._place = Path(self._copy.name) / self.path.name
        for suffix in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{self.path}{suffix}", f"{self._place}{suffix}")
        self._mode = "mode=rw"

    def _leave_the_log_out(self) -> None:
        self._place, self._mode = self.path, "immutable=1"
        self.lost = (
            f"The last moments of this run are missing: the log beside '{self.path.name}' cannot be read in a "
            "read-only folder. Copy the folder to a place that can be written."
        )
