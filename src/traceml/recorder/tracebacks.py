"""Keeps our frames out of the tracebacks that people read.

A Python function that an exception leaves always stands in its traceback, and only somebody further out can take it
out again. Two do: `trace_step`'s end, and `sys.excepthook`, which is replaced when an exception first passes through
one of our hooks, and not before. The good path costs nothing.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any, Final, Optional

_OURS: Final = os.path.dirname(__file__) + os.sep  # noqa: PTH120  # no pathlib on the training side
_MAX_CHAIN: Final = 100

_before: Any = None


def strip(error: Optional[BaseException]) -> None:
    """Takes our frames out of an exception's traceback, and out of those it came from."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _MAX_CHAIN:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        trace = _stripped(found.__traceback__)
        if trace is not found.__traceback__:
            found.__traceback__ = trace
        waiting += (found.__cause__, found.__context__)


def conceal() -> None:
    """An exception is on its way through one of our hooks: should nobody catch it, it is shown without us."""
    global _before  # noqa: PLW0603  # what stood there before
    if sys.excepthook is not _shown:
        _before = sys.excepthook
        sys.excepthook = _shown


def restore() -> None:
    """Puts `sys.excepthook` back, where ours still stands."""
    if sys.excepthook is _shown:
        sys.excepthook = _before


def _shown(kind: Any, error: BaseException, trace: Optional[TracebackType]) -> None:
    restore()
    try:
        strip(error)
        trace = _stripped(trace)
    finally:
        _before(kind, error, trace)


def _stripped(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    at = trace
    while at is not None:
        while at.tb_next is not None and _is_ours(at.tb_next):
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return trace


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_OURS)
