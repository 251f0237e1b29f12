"""Sees garbage collections of the training thread, and hands on what a signal handler raises meanwhile.

A pending signal's handler runs in the first Python code there is. When the signal came during a collection that is our
callback, and what leaves a collection's callback is handed to `sys.unraisablehook` and lost: a Ctrl-C would be. So we
stand before that hook, and raise it again as soon as our frames are gone.
"""

from __future__ import annotations

import gc
import sys
import weakref
from functools import partial
from threading import get_ident
from typing import Any, Final, Optional

from traceml.recorder.interrupts import is_users
from traceml.recorder.pen import COLLECTIONS, Pen
from traceml.wire import edges

HOOK: Final = "gc"
_OPEN: Final = edges.GC
_CLOSE: Final = edges.GC + edges.CLOSE
_waiting: list[Any] = []  # the reference whose callback raises; one at a time


def install(pen: Pen) -> str:  # noqa: C901  # one small closure a place
    """Adds the callback; returns nothing: it can always be."""
    nxt, mask, codes, stamps, clock = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock
    clocked: Optional[list[float]] = None
    before = sys.unraisablehook

    def collecting(phase: str, _info: Any) -> None:
        if get_ident() != pen.owner:
            return
        entered = clock() if clocked is not None else 0.0
        k = nxt() & mask
        codes[k] = _OPEN if phase == "start" else _CLOSE
        stamps[k] = now = clock()
        if clocked is not None:
            clocked[COLLECTIONS] += now - entered

    def renew() -> None:
        nonlocal clocked  # alone: what takes up device events has no number for a collection
        clocked = pen.clocked

    def unraisable(found: Any) -> None:
        error = found.exc_value
        if found.object is not collecting or error is None:
            before(found)
        elif not is_users(error):
            pen.guard.fault(HOOK, error)
        else:
            until_we_are_gone = _Token()
            error.__traceback__ = None  # it would hold our frames
            _raise_behind(until_we_are_gone, error)

    def remove() -> None:
        if collecting in gc.callbacks:
            gc.callbacks.remove(collecting)
        if sys.unraisablehook is unraisable:
            sys.unraisablehook = before

    gc.callbacks.append(collecting)
    pen.swaps.append(renew)
    sys.unraisablehook = unraisable
    pen.guard.register(HOOK, remove)
    return ""


class _Token:
    """Dies with the frame that holds it."""

    __slots__ = ("__weakref__",)


def _raise_behind(token: _Token, error: BaseException) -> None:
    """Raises `error` in this thread as soon as `token` is gone, in whatever Python code runs then.

    The interpreter instantiates the class that it is given: this one's instance is the very exception.
    """
    import ctypes  # noqa: PLC0415  # once in a process's life, if ever

    kind = type(error)
    again = type(kind.__name__, (kind,), {"__new__": lambda *_: error, "__init__": lambda *_: None})
    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    set_exception.argtypes = (ctypes.c_ulong, ctypes.py_object, ctypes.py_object)  # the last: the dead reference
    # A call from Python would be answered in our own frame; that of a reference's callback, in C, is not.
    _waiting[:] = [weakref.ref(token, partial(set_exception, get_ident(), again))]
