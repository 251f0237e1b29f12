"""Finds the last lines of the rank that died first, whose output is in a file that nobody has looked into yet."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from traceml.launch.output import log_name
from traceml.schema import units
from traceml.schema.stalls import FIRST_DEATH

if TYPE_CHECKING:
    from pathlib import Path

_NUM_LINES: Final = 20
_MAX_BYTES: Final = 1 << 15


def last_words(folder: Path, summary: Path) -> list[str]:
    """The rank's last 20 lines, each behind `rank 3 | `; none where no rank died, or its output was seen as it came.

    Args:
        folder: The run folder, with the ranks' logs.
        summary: `final_summary.json`, which says who died first.
    """
    try:
        found = json.loads(summary.read_text(encoding="utf-8"))
        rank = _first_dead(found)
        if rank is None or rank == 0:  # its output was shown
            return []
        text = _end_of(folder / log_name(rank))
    except (OSError, ValueError):
        return []
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    return [f"rank {rank} | {units.printed(line)}" for line in lines[-_NUM_LINES:]]


def _first_dead(summary: Any) -> Any:
    events = summary.get("events") if isinstance(summary, dict) else None
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict) and event.get("kind") == FIRST_DEATH and isinstance(event.get("rank"), int):
            return event["rank"]
    return None


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MAX_BYTES))
        return file.read().decode("utf-8", "replace")
