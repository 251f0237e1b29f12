"""Says what the collector asks its composition root to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Optional

if TYPE_CHECKING:
    from traceml.schema.panel import PanelRequest


def nothing_more() -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Callbacks:
    """What the collector asks its composition root to do.

    `answer(pid)` writes the report that this rank's process asked for; `is_quiet` is called when every rank has said
    goodbye and the script goes on; `spare` is called about once a second, when nothing else is due; `note` takes a line
    for the user; `line` tells the launcher where the run is, and `panel` draws it for the launcher's terminal;
    `orphaned` is called when the launcher is gone and has not said how the script ended.
    """

    answer: Callable[[int], None]
    note: Callable[[str], None]
    line: Callable[[], None] = nothing_more
    is_quiet: Callable[[], None] = nothing_more
    spare: Callable[[], None] = nothing_more
    orphaned: Callable[[], None] = nothing_more
    panel: Optional[Callable[[PanelRequest], None]] = None
