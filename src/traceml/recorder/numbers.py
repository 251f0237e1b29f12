"""Writes the numbers that a script gives: its own step's, and what it counts; what is none is said once."""

from __future__ import annotations

from typing import Any, Final

from traceml.recorder.pen import Pen
from traceml.wire import edges

_MAX_COUNT: Final = 1 << 53  # whole numbers up to here stand exactly in the ring


def write_step(pen: Pen, number: Any) -> None:
    """The script's own step number; what is none is said once."""
    try:
        whole = int(number)
        if whole == number and 0 <= whole < _MAX_COUNT:
            pen.value(edges.USER_STEP, whole)
            return
    except (TypeError, ValueError, OverflowError):
        pass
    pen.say_once("step", f"trace_step(step={number!r}) is not a whole number of at least 0: it is not shown.")


def write_count(pen: Pen, code: int, name: str, number: Any) -> None:
    """Takes whatever is a whole number, a one-element tensor or a numpy integer too."""
    try:
        whole = int(number)
        if whole == number and 0 <= whole < _MAX_COUNT:
            pen.value(code, whole)
            return
    except (TypeError, ValueError, OverflowError):
        pass
    pen.say_once(name, f"count({name}={number!r}) is not a whole number of at least 0: it is not counted.")
