"""A step that is entered while one is open: part of that one, or of another thread's or coroutine's, not recorded."""

from __future__ import annotations

from dataclasses import replace
from threading import get_ident
from typing import Any

from traceml.recorder.pen import Pen


class Again:
    """What a step holds that was entered while one was open (it itself, even), until it is left as often."""

    __slots__ = ("_num_steps", "_thread", "outer")

    def __init__(self, outer: Any, pen: Pen) -> None:
        self.outer, self._num_steps, self._thread = outer, pen.num_steps, get_ident()

    def leave(self, pen: Pen) -> None:
        """A step in another thread is not recorded, nor is a coroutine's whose thread was in another one's step."""
        found = pen.unrecorded
        if self._thread != pen.owner:
            pen.unrecorded = replace(found, in_threads=found.in_threads + 1)
        elif self._num_steps != pen.num_steps:  # the one around it ended first
            pen.unrecorded = replace(found, overlapping=found.overlapping + 1)


def leave_again(pen: Pen, step: Any, hook: str) -> None:
    """One that was entered while a step was open is left: mostly a nested one, which is part of that step."""
    again: Any = step._pen  # noqa: SLF001  # ours
    step._pen = again.outer  # noqa: SLF001
    try:
        again.leave(pen)
    except BaseException as error:  # noqa: BLE001  # guard
        pen.guard.fault(hook, error)
