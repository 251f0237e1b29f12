"""Finds where a run's files really are, and whether its collector still lives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from traceml.wire.node import RUNNING, Node, read_node
from traceml.wire.ringfolder import is_ring_folder

if TYPE_CHECKING:
    from traceml.schema.records import Manifest

DATABASE: Final = Path("node-0") / "run.db"
_COLLECTOR: Final = b"traceml"  # in the command line of our processes


@dataclass(frozen=True)
class Home:
    """Where a run's database and summary are, what the collector had to note, and whether the run still goes on."""

    folder: Path
    notes: tuple[str, ...] = ()
    is_running: bool = False


def home_of(folder: Path, manifest: Manifest) -> Home:
    """The run's home: its folder, or the one the collector moved to (full disk, read-only)."""
    ring_dir = Path(manifest.ring_dir)
    # A finished run has no ring folder any more; somebody else's folder is not believed.
    node = read_node(ring_dir) if is_ring_folder(ring_dir) else Node()
    is_running = _is_running(node, manifest)
    if node.folder is not None and node.folder != folder and node.folder.is_dir():
        moved = f"the run's files are in '{node.folder}', not in '{folder}'"
        return Home(node.folder, (*node.notes, moved), is_running)
    return Home(folder, node.notes, is_running)


def _is_running(node: Node, manifest: Manifest) -> bool:
    """Whether the collector lives and has not said that it is done, or one that was killed has still to come back."""
    if not is_ring_folder(Path(manifest.ring_dir)) or node.state not in ("", RUNNING):
        return False
    if node.pid is not None and _is_ours(node.pid):
        return True
    from traceml.collect.recover import lives  # noqa: PLC0415  # brings psutil; a finished run never comes here

    return lives(manifest)


def _is_ours(pid: int) -> bool:
    """Whether a process lives and is one of TraceML's, not a stranger that was given the number again."""
    if pid <= 0:
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
