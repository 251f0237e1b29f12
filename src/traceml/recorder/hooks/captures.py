"""Knows whether a graph is being captured, in whatever thread: until then no event may be recorded, or asked after.

A query of any event, even one recorded long before, breaks the user's capture, from any thread.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Final

from traceml.recorder.accelerator import Accelerator
from traceml.recorder.pen import Pen
from traceml.recorder.tracebacks import conceal

HOOK: Final = "captures"


class Captures:
    """The captures that are open, by whoever opened them; one whose object has died is none."""

    def __init__(self, is_capturing: Callable[[], bool]) -> None:
        self._is_capturing = is_capturing
        self.open: dict[int, weakref.ref[Any]] = {}

    def is_open(self) -> bool:
        """Whether anything is being captured: in any thread that came through torch's classes, or on this stream."""
        return bool(self.open) or self._is_capturing()

    def begin(self, owner: Any) -> None:
        """`owner` captures."""
        key = id(owner)
        self.open[key] = weakref.ref(owner, lambda _: self.open.pop(key, None))

    def end(self, owner: Any) -> None:
        """It does no more."""
        self.open.pop(id(owner), None)


def install(pen: Pen, accelerator: Accelerator) -> Captures:
    """Wraps what opens and closes captures."""
    captures = Captures(accelerator.is_capturing)
    wrapped: list[tuple[Any, str, Any, Any]] = []

    def remove() -> None:
        while wrapped:
            owner, name, real, ours = wrapped.pop()
            if owner.__dict__.get(name) is ours:
                setattr(owner, name, real)

    pen.guard.register(HOOK, remove)
    for owner, opening, closing in accelerator.capturing:
        for name, make in ((opening, _make_begin), (closing, _make_end)):
            real = owner.__dict__[name]
            ours = make(pen, captures, real)
            setattr(owner, name, ours)
            wrapped.append((owner, name, real, ours))
    return captures


def _make_begin(pen: Pen, captures: Captures, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        _guarded(pen, captures.begin, self)
        try:
            return real(self, *args, **kwargs)
        except BaseException:
            conceal()
            _guarded(pen, captures.end, self)
            raise

    return begin


def _make_end(pen: Pen, captures: Captures, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(self, *args, **kwargs)
        except BaseException:
            conceal()
            raise
        finally:
            _guarded(pen, captures.end, self)

    return end


def _guarded(pen: Pen, note: Callable[[Any], None], owner: Any) -> None:
    try:
        note(owner)
    except BaseException as error:  # noqa: BLE001  # guard
        pen.guard.fault(HOOK, error)
