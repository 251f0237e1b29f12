"""Carries the collector's word: how far it is, where the run's files really are, and what it had to note."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Optional

from traceml.wire.manifest import write_private
from traceml.wire.paths import from_file, to_file
from traceml.wire.regular import open_regular
from traceml.wire.ringfolder import NODE

RUNNING: Final = "running"
DONE: Final = "done"
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Node:
    """What a collector says of itself in the ring folder; `Node()` is that of one that never came so far."""

    state: str = ""  # RUNNING or DONE
    pid: Optional[int] = None
    folder: Optional[Path] = None  # where database and summary really are
    notes: tuple[str, ...] = ()
    verdict: Optional[str] = None
    num_ranks: Optional[int] = None

    @property
    def is_done(self) -> bool:
        """Whether the summary is written."""
        return self.state == DONE


def write_node(ring_dir: Path, node: Node) -> None:
    """Says it, in one piece.

    Raises:
        OSError: The ring folder is gone, or takes nothing.
    """
    told = {
        "pid": node.pid,
        "state": node.state,
        "folder": to_file(str(node.folder)),
        "notes": list(node.notes),
        "verdict": node.verdict,
        "num_ranks": node.num_ranks,
    }
    write_private(ring_dir / NODE, json.dumps(told) + "\n")


def read_node(ring_dir: Path) -> Node:
    """The collector's word; an empty one when there is none, or what stands there was not written by one."""
    try:
        with open_regular(ring_dir / NODE) as file:
            found: Any = json.loads(file.read(_MAX_BYTES))
        pid, ranks, verdict = found.get("pid"), found.get("num_ranks"), found.get("verdict")
        return Node(
            state=str(found["state"]),
            pid=_whole(pid),
            folder=Path(from_file(found["folder"])),
            notes=tuple(str(note) for note in found["notes"]),
            verdict=None if verdict is None else str(verdict),
            num_ranks=_whole(ranks),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Node()


def _whole(number: Any) -> Optional[int]:
    return number if isinstance(number, int) and not isinstance(number, bool) and number >= 0 else None
