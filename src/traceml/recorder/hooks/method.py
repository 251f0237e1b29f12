"""Sees `model.forward(x)`: once it is clear that a training calls its model so, the instance's `forward` is taken.

Only then, and only as long as nothing is compiled: a `forward` of ours under the compiler breaks graphs.
"""

from __future__ import annotations

import sys
from typing import Final

from traceml.recorder.hooks import forward
from traceml.recorder.hooks.stand import METHOD, Stand
from traceml.recorder.pen import Pen
from traceml.wire import edges
from traceml.wire.ring import PUBLISHED

HOOK: Final = "forward method"
_MAX_EDGES: Final = 4096
_FORWARDS: Final = (edges.FORWARD, edges.FORWARD_NO_GRAD, edges.EVAL)


class Methods:
    """Looks back over a few finished steps at a time: was there a backward, and no forward?"""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._seen_until = 0

    def look(self) -> None:
        """Takes the `forward` of the traced models from the next step on, if that is called past their call."""
        pen = self._pen
        first, last = self._seen_until, pen.ring.header[PUBLISHED]
        self._seen_until = last
        if pen.has_compiled or not pen.guard.is_on(HOOK):
            return
        codes = self._codes(max(first, last - _MAX_EDGES), last)
        if edges.BACKWARD in codes and not any(code in codes for code in _FORWARDS) and not _has_compiled():
            for model in forward.attached:
                forward.attach_method(pen, model)

    def remove(self) -> None:
        """Gives every `forward` back."""
        for model in forward.attached:
            found = model.__dict__.get(METHOD)
            if isinstance(found, Stand):
                if found.before is None:
                    del model.__dict__[METHOD]
                else:
                    model.__dict__[METHOD] = found.before

    def _codes(self, first: int, last: int) -> bytes:
        codes, mask = self._pen.codes, self._pen.mask
        start, end = first & mask, last & mask
        return bytes(codes[start:end]) if start <= end else bytes(codes[start:]) + bytes(codes[:end])


def install(pen: Pen) -> str:
    """Begins to look; returns nothing. Before torch 2.1 the `forward` is taken anyway, there is no other place."""
    methods = Methods(pen)
    if pen.slot != METHOD:
        pen.late_looks.append(methods.look)
    pen.on_compiled.append(methods.remove)
    pen.guard.register(HOOK, methods.remove)
    return ""


def _has_compiled() -> bool:
    """Whether the compiler has been at work in this process, before us too."""
    utils = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters.get("frames"))
