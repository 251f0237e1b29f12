"""Tells what a signal handler of the user's raised in the middle of our own lines from a fault of ours.

A handler runs between two bytecodes of whatever is running; `class Timeout(Exception)`, raised from SIGALRM, may leave
one of our frames. It is the user's, and goes on to where they catch it. The interpreter gives a handler the frame that
it interrupted: by that one it is known, whichever signal it is for and however it was registered.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Final, Iterator, Optional

from traceml.recorder.tracebacks import conceal

_OURS: Final = os.path.dirname(__file__) + os.sep  # noqa: PTH120  # no pathlib on the training side
_STDLIB: Final[frozenset[str]] = getattr(sys, "stdlib_module_names", frozenset())
_NOT_USERS: Final = frozenset({"builtins", "traceml", "torch", "numpy", *_STDLIB}) - {"__main__"}


def is_users(error: BaseException) -> bool:
    """Whether an exception that one of our guards caught was raised by a signal handler, or sent from another thread.

    What is no `Exception` (Ctrl-C, an exit) always is.
    """
    if not isinstance(error, Exception):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if _is_handler(trace.tb_next.tb_frame, trace.tb_frame):
            return True
        trace = trace.tb_next
    return trace is not None and _was_sent(error, trace)


def let_pass(error: BaseException) -> None:
    """Raises again what is the user's, without our frames before it; returns where it is a fault of ours."""
    if is_users(error):
        conceal()
        raise error.with_traceback(_from_handler(error.__traceback__))


def _is_handler(frame: FrameType, interrupted: FrameType) -> bool:
    if any(value is interrupted for value in _arguments(frame)):
        return True
    return any(code is frame.f_code for code in _codes_of_handlers())  # one that has no name for its frame


def _arguments(frame: FrameType) -> Iterator[Any]:
    code, found = frame.f_code, frame.f_locals
    has_rest, has_named = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + has_rest + has_named]
    for name in names:
        value = found.get(name)
        yield value
        if type(value) is tuple:
            yield from value


def _codes_of_handlers() -> Iterator[Any]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        yield getattr(handler, "__code__", None)


def _was_sent(error: Exception, innermost: TracebackType) -> bool:
    """Whether it appeared in a line of ours without a frame of its own, and is of a class that no line of ours raises.

    So does what another thread sends with `PyThreadState_SetAsyncExc` (stopit, func_timeout).
    """
    is_in_our_line = innermost.tb_frame.f_code.co_filename.startswith(_OURS)
    return is_in_our_line and type(error).__module__.partition(".")[0] not in _NOT_USERS


def _from_handler(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """The traceback from the first frame on that is not ours; all of it where there is none."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_OURS):
        found = found.tb_next
    return found
