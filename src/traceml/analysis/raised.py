"""Remembers which phase the newest exception left, until training goes on."""

from __future__ import annotations

from typing import Final, Optional

from traceml.analysis.division import BACKWARD, FETCH, FORWARD, OPTIMIZER, STARTING, SYNC

_TRAINS: Final = frozenset({FETCH, STARTING, FORWARD, BACKWARD, OPTIMIZER})
_ANY: Final = 1 << 30


class Raised:
    """An exception that goes on through the phases around it left the innermost of them.

    What comes behind it without training (a collection, a checkpoint that is saved in its handler) takes nothing of
    that back. What fails while it waits for other ranks failed because of them, whatever fails behind it; and a wait
    that fails behind another exception, in a `finally`, is not what ended the training.
    """

    __slots__ = ("_depth", "has_ended_step", "slot")

    def __init__(self) -> None:
        self.slot: Optional[int] = None
        self.has_ended_step = False  # a step that `trace_step` marked
        self._depth = _ANY

    def left(self, slot: int, depth: int) -> None:
        """An exception leaves the innermost open phase, at this depth of open ones."""
        is_on_its_way, self._depth = depth < self._depth < _ANY, depth
        if self.slot is None or not (is_on_its_way or SYNC in (slot, self.slot)):
            self.slot, self.has_ended_step = slot, False

    def opened(self, slot: int) -> None:
        """A phase begins."""
        self._depth = _ANY
        if slot in _TRAINS:
            self.clear()

    def ended_step(self, slot: int) -> None:
        """A step failed, in this phase."""
        self.slot, self.has_ended_step, self._depth = slot, True, _ANY

    def clear(self) -> None:
        """Training went on."""
        self.slot, self.has_ended_step, self._depth = None, False, _ANY
