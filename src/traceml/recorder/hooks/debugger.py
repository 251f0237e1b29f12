"""Sees that a Python debugger has this thread: the steps of that time are left out.

Every debugger built on `bdb` (pdb, ipdb, pudb, `breakpoint()`, post mortem) calls `Bdb.reset` when it begins, in the
step that it interrupts. That method takes no frame, so a wrap of it moves no breakpoint. From there on, and where a
debugger of another make is loaded (debugpy), each step's end looks whether something still traces; otherwise the
looks are those of keep_house. What stops or traces the process from outside (SIGSTOP, gdb) the collector sees.
"""

from __future__ import annotations

import bdb
import functools
import sys
from threading import get_ident
from typing import Any, Final, Optional

from traceml.recorder.pen import Pen
from traceml.schema.records import Halt
from traceml.wire import edges
from traceml.wire.ring import PUBLISHED

HOOK: Final = "debugger"
_TRACED: Final = "traced"
_FOREIGN: Final = ("pydevd", "debugpy")
_NO_DEBUGGERS: Final = ("coverage", "hypothesis")  # whose trace functions nobody stops in
_NUM_BACK: Final = 8  # values that may stand behind a step's end
_DEBUGGER_ID: Final = 0  # sys.monitoring's


class Debuggers:
    """One session's: since when a debugger has the training thread."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._since_ns: Optional[int] = None
        self._looked_ns = pen.clock_ns()

    def begins(self) -> None:
        """A debugger begins, now."""
        if self._since_ns is None:
            self._send(self._pen.clock_ns())
        self._pen.tend_soon()  # the end of this step looks again

    def look(self) -> None:
        """Right behind a step's end; one that began since the last look may have had every step since then."""
        pen, now_ns = self._pen, self._step_end_ns()
        if is_traced():
            if self._since_ns is None:
                self._send(self._looked_ns)
            pen.tend_soon()
        elif self._since_ns is not None:
            pen.ring.send(Halt(self._since_ns, now_ns, _TRACED))
            self._since_ns = None
        elif any(name in sys.modules for name in _FOREIGN):
            pen.tend_soon()
        self._looked_ns = now_ns

    def _step_end_ns(self) -> int:
        """The stamp of the newest edge: now would be a moment of the next step."""
        pen = self._pen
        newest = pen.ring.header[PUBLISHED] - 1
        for at in range(newest, max(-1, newest - _NUM_BACK), -1):
            if pen.codes[at & pen.mask] < edges.FIRST_VALUE:
                return int(pen.stamps[at & pen.mask] * 1e9)
        return pen.clock_ns()

    def _send(self, since_ns: int) -> None:
        self._since_ns = since_ns
        self._pen.ring.send(Halt(since_ns, None, _TRACED))


def is_traced() -> bool:
    """Whether a debugger traces the calling thread at this moment; a coverage measurement is none."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None and monitoring.get_tool(_DEBUGGER_ID) is not None:
        return True
    trace: Any = sys.gettrace()
    if trace is None:
        return False
    module = getattr(trace, "__module__", None) or type(trace).__module__
    return str(module).partition(".")[0] not in _NO_DEBUGGERS


def install(pen: Pen) -> str:
    """Wraps `Bdb.reset` and begins to look; returns nothing: there is always one."""
    debuggers = Debuggers(pen)
    real = bdb.Bdb.reset

    @functools.wraps(real)
    def reset(self: Any) -> None:
        if get_ident() == pen.owner:
            try:
                debuggers.begins()
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)
        real(self)

    def remove() -> None:
        if bdb.Bdb.__dict__.get("reset") is reset:
            bdb.Bdb.reset = real  # type: ignore[method-assign]

    bdb.Bdb.reset = reset  # type: ignore[method-assign]
    pen.late_looks.append(debuggers.look)
    pen.guard.register(HOOK, remove)
    if is_traced():
        debuggers.begins()
    return ""
