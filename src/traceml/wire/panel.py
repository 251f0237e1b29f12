"""Words the launcher's question for the panel and the collector's answer: one JSON line each."""

from __future__ import annotations

import json
from typing import Any, Final, Optional, Sequence

from traceml.schema.panel import BACKGROUNDS, COLOURS, PanelRequest

KEY: Final = "panel"
_COLUMNS: Final = range(10, 1001)
_ROWS: Final = range(1, 101)
_OPENING: Final = b'{"panel": ['


def question(request: PanelRequest) -> dict[str, Any]:
    """What the launcher sends."""
    return {KEY: dict(request._asdict())}


def heard(line: dict[str, Any]) -> Optional[PanelRequest]:
    """The question in a line of the launcher's, sizes kept within reason; None where there is none, or no sound one."""
    found = line.get(KEY)
    if not isinstance(found, dict):
        return None
    columns, rows = found.get("columns"), found.get("rows")
    if not isinstance(columns, int) or not isinstance(rows, int):
        return None
    colours, background = found.get("colours"), found.get("background")
    return PanelRequest(
        columns=min(max(columns, _COLUMNS[0]), _COLUMNS[-1]),
        rows=min(max(rows, _ROWS[0]), _ROWS[-1]),
        colours=colours if colours in COLOURS else COLOURS[0],
        background=background if background in BACKGROUNDS else BACKGROUNDS[0],
        ascii=found.get("ascii") is True,
    )


def answer(rows: Sequence[str]) -> bytes:
    """What the collector sends: ASCII, so that no locale can break it."""
    return json.dumps({KEY: list(rows)}).encode() + b"\n"


def rows_of(line: bytes) -> Optional[tuple[str, ...]]:
    """The rows in a line of the collector's; None of any other line, a plain one for the user."""
    if not line.startswith(_OPENING):
        return None
    try:
        found = json.loads(line)[KEY]
    except (ValueError, KeyError, TypeError):
        return None
    return tuple(found) if all(isinstance(row, str) for row in found) else None
