"""Whether the compiler is reading a call of ours: inside a compiled function ours are nothing to it.

Whoever asks `is_so()` first and returns leaves nothing in a graph: the compiler folds the answer to True. The question
costs a tenth of a step's two edges, so it is asked only while `may_be`: from the first compilation on, and while nobody
would hear of one.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional

from traceml.recorder.hooks.compiler import HOOK as COMPILER
from traceml.recorder.pen import Pen, skip_below

may_be = True
_has_been = False  # by then compiled code may stand on what stood here: it stays, or that code is compiled again
_current: Optional[Pen] = None
_asked: Optional[Callable[[], bool]] = None  # torch's, once it is loaded


def is_so() -> bool:
    """Whether this call is being compiled."""
    return _asked() if _asked is not None else _find()


def begin(pen: Optional[Pen], exchange: Callable[[], None], ours: tuple[Any, ...]) -> None:
    """A session begins or (None) ends: sets `may_be`, and calls `exchange` when that changes later.

    Args:
        pen: The session's.
        exchange: Takes what asks in place of what does not.
        ours: Functions that the compiler has to leave alone where they run uncompiled.
    """
    global may_be, _current  # noqa: PLW0603  # a process has one compiler
    _current = pen
    _find()
    may_be = pen is None or _has_been or _has_compiled() or pen.has_compiled or not pen.guard.is_on(COMPILER)
    if pen is None:
        leave_alone(ours)
        return

    def compiled() -> None:
        global may_be, _has_been  # noqa: PLW0603
        may_be = True
        _has_been = _has_been or pen is _current  # a hook that comes off at the end says so, too
        exchange()

    pen.on_compiled.append(compiled)
    for function in ours:  # without the hook nothing of ours waits in the import's way: it is seen at the next look
        pen.skip(function, whole=True, awaits=pen.guard.is_on(COMPILER))


def leave_alone(ours: tuple[Any, ...]) -> None:
    """As in `begin`, where no session is open; only once the compiler is loaded."""
    skip = getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None)
    if skip is not None:
        for function in ours:
            skip(function.__code__)
            skip_below(function.__code__)


def _find() -> bool:
    global _asked  # noqa: PLW0603
    _asked = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", None)
    return _asked() if _asked is not None else False


def _has_compiled() -> bool:
    """Whether something was compiled before, while nobody listened."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return counters is not None and any(counters.get(name) for name in ("frames", "stats"))


_find()
