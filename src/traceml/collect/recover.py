"""Brings home what a run's processes left in their rings when everything died at once."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Iterable, Iterator, Optional

from traceml.collect.callbacks import Callbacks
from traceml.collect.collector import Collector
from traceml.collect.keeping import Keeping
from traceml.collect.launcher import Launcher
from traceml.collect.life import is_alive
from traceml.collect.lock import take_lock
from traceml.errors import RunError, WireError
from traceml.wire.manifest import read_manifest
from traceml.wire.node import read_node
from traceml.wire.ring import RingReader
from traceml.wire.ringfolder import RUN, is_ring_folder, remove_ring_folder

if TYPE_CHECKING:
    from traceml.schema.records import Manifest

_BEING_MADE_S: Final = 60.0
_DEFAULT_MB: Final = 64


def recover(folder: Path) -> bool:
    """Drains the rings of a run whose processes are all gone into its database, stores its end, removes the rings.

    Returns:
        Whether there was something to bring home; False also while a process of the run lives.

    Raises:
        RunError: The run folder or its database cannot be used.
    """
    manifest = read_manifest(folder)
    ring_dir = Path(manifest.ring_dir)
    if ring_dir.exists() and not is_ring_folder(ring_dir):
        message = f"Run '{folder}' names '{ring_dir}' as its ring folder, which is none of TraceML's: it is left alone."
        raise RunError(message, slug="damaged-run")
    lock = take_lock(ring_dir) if ring_dir.is_dir() else None
    if lock is None:
        return False
    try:
        if lives(manifest):
            return False
        # What the database's move would note is told again by the node file, as long as that stands.
        place = database_home(folder, ring_dir)
        keeping = Keeping(place, manifest, max_bytes=max_bytes(manifest), noted=_unheard, home=folder)
        callbacks = Callbacks(answer=_nobody_asks, note=_unheard)
        Collector(manifest, keeping, Launcher(None), sampling=None, callbacks=callbacks).run()
        remove_ring_folder(ring_dir)
    finally:
        os.close(lock)
    return True


def lives(manifest: Manifest) -> bool:
    """Whether a process of the run lives: the one that started it, or one that writes a ring."""
    starter = manifest.launcher_pid
    if starter is not None and is_alive(starter, born_before=manifest.created_at):
        return True
    return any(is_alive(pid, born_before=born_before) for pid, born_before in _writers(Path(manifest.ring_dir)))


def orphans(roots: Iterable[Path]) -> Iterator[Path]:
    """The run folders of rings that nobody collects any more; ring folders without a run are removed on the way.

    Args:
        roots: The folders in which this user's ring folders lie.
    """
    for root in roots:
        for ring_dir in _folders(root):
            folder = _orphan(ring_dir)
            if folder is not None:
                yield folder


def max_bytes(manifest: Manifest) -> int:
    """The database's cap as the user chose it."""
    chosen = manifest.settings.get("store_max_mb", "").split(" ")[0]
    return (int(chosen) if chosen.isdigit() else _DEFAULT_MB) << 20


def _orphan(ring_dir: Path) -> Optional[Path]:
    lock = take_lock(ring_dir) if is_ring_folder(ring_dir) else None
    if lock is None:
        return None
    try:
        folder = Path(os.fsdecode((ring_dir / RUN).read_bytes()))
        manifest = read_manifest(folder)
        if lives(manifest):
            return None
        if not read_node(ring_dir).is_done and Path(manifest.ring_dir) == ring_dir:
            return folder
    except (OSError, RunError):  # without its run folder nobody can ever ask for it
        if _is_young(ring_dir) or any(is_alive(pid, born_before=at) for pid, at in _writers(ring_dir)):
            return None
    finally:
        os.close(lock)
    remove_ring_folder(ring_dir)
    return None


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _writers(ring_dir: Path) -> Iterator[tuple[int, float]]:
    for path in ring_dir.glob("*.ring"):
        try:
            reader = RingReader(path)
        except WireError:
            continue
        yield reader.identity.pid, reader.identity.anchor_wall_ns / 1e9
        reader.close()


def earlier_notes(ring_dir: Path) -> list[str]:
    """What a collector that died had to tell of this run."""
    return list(read_node(ring_dir).notes)


def database_home(folder: Path, ring_dir: Path) -> Path:
    """Where the database is: a collector may have moved it before it died."""
    moved = read_node(ring_dir).folder
    if moved is not None and moved.is_dir() and os.lstat(moved).st_uid == os.getuid():
        return moved
    return folder


def _is_young(ring_dir: Path) -> bool:
    try:
        return time.time() - ring_dir.stat().st_mtime < _BEING_MADE_S
    except OSError:
        return True


def _unheard(_: str) -> None:
    """Nobody is there to read it."""


def _nobody_asks(_: int) -> None:
    """The rank that asked is gone."""
