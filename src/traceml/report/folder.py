"""Finds where a run's files really are, and whether its collector still lives."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Mapping, Optional

from traceml.wire.regular import open_regular
from traceml.wire.ringfolder import is_ring_folder

if TYPE_CHECKING:
    from traceml.schema.records import Manifest

DATABASE: Final = Path("node-0") / "run.db"
_NODE_FILE: Final = "node.json"  # in the ring folder, written by the collector
_MAX_BYTES: Final = 1 << 20
_COLLECTOR: Final = b"traceml"  # in the command line of our processes


@dataclass(frozen=True)
class Home:
    """Where a run's database and summary are, what the collector had to note, and whether the run still goes on."""

    folder: Path
    notes: tuple[str, ...] = ()
    is_running: bool = False


def home_of(folder: Path, manifest: Manifest) -> Home:
    """The run's home: its folder, or the one the collector moved to (full disk, read-only)."""
    node = _node(Path(manifest.ring_dir))
    is_running = _is_running(node, manifest)
    if node is None:
        return Home(folder, is_running=is_running)
    notes = node.get("notes")
    told = tuple(str(note) for note in notes) if isinstance(notes, list) else ()
    moved = node.get("folder")
    if isinstance(moved, str) and Path(moved) != folder and Path(moved).is_dir():
        return Home(Path(moved), (*told, f"the run's files are in '{moved}', not in '{folder}'"), is_running)
    return Home(folder, told, is_running)


def _is_running(node: Optional[Mapping[str, Any]], manifest: Manifest) -> bool:
    """Whether the collector lives and has not said that it is done, or one that was killed has still to come back."""
    if not is_ring_folder(Path(manifest.ring_dir)) or (node is not None and node.get("state") != "running"):
        return False
    if node is not None and _is_ours(node.get("pid")):
        return True
    from traceml.collect.recover import lives  # noqa: PLC0415  # brings psutil; a finished run never comes here

    return lives(manifest)


def _node(ring_dir: Path) -> Optional[dict[str, Any]]:
    try:
        if not is_ring_folder(ring_dir):
            return None  # somebody else's folder: its word is not believed
        with open_regular(ring_dir / _NODE_FILE) as file:
            found = json.loads(file.read(_MAX_BYTES))
    except (
        OSError,
        ValueError,
        RecursionError,
    ):  # not there (a finished run), or not readable: the folder speaks alone
        return None
    return found if isinstance(found, dict) else None


def _is_ours(pid: Any) -> bool:
    """Whether a process lives and is one of TraceML's, not a stranger that was given the number again."""
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return False
    if os.name != "posix":
        return False  # runs are not recorded there, and os.kill would end the process
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):  # gone, another user's, or no pid at all
        return False
    try:
        return _COLLECTOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True  # no /proc here (macOS)
