"""Sees garbage collections of the training thread."""

from __future__ import annotations

import gc
from threading import get_ident
from typing import Any, Final

from traceml.recorder.pen import Pen
from traceml.wire import edges

HOOK: Final = "gc"
_OPEN: Final = edges.GC
_CLOSE: Final = edges.GC + edges.CLOSE


def install(pen: Pen) -> str:
    """Adds the callback; returns nothing: it can always be."""
    nxt, mask, codes, stamps, clock = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock

    def collecting(phase: str, _info: Any) -> None:
        if get_ident() != pen.owner:
            return
        try:
            k = nxt() & mask
            codes[k] = _OPEN if phase == "start" else _CLOSE
            stamps[k] = clock()
        except Exception as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)

    def remove() -> None:
        if collecting in gc.callbacks:
            gc.callbacks.remove(collecting)

    gc.callbacks.append(collecting)
    pen.guard.register(HOOK, remove)
    return ""
