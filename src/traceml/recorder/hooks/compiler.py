"""Sees compilation: Dynamo's own start and end callbacks; counts recompilations, with the reason Dynamo gives."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from threading import get_ident
from typing import Any, Callable, Final, Optional

from traceml.recorder.pen import Pen
from traceml.schema.records import Compilation
from traceml.wire import edges

HOOK: Final = "compile"
_OPEN: Final = edges.COMPILE
_CLOSE: Final = edges.COMPILE + edges.CLOSE
_MAX_TOLD: Final = 100  # with a record of its own each; from there on only when their number has doubled
_MAX_TEXT: Final = 300
#: What a reason holds beside the reason: addresses, ids, the reprs of two backends, a stack, a link.
_NOISE: Final = (
    re.compile(r" ?Cached backend: .*? New backend: .*?(?= If this is unexpected|$)"),
    re.compile(r" ?User stack trace:.*"),
    re.compile(r" ?More details: \S+"),
    re.compile(r" ?\(id=(0x)?[0-9a-fA-F]+\)|( at)? ?\b0x[0-9a-fA-F]+\b|, [0-9]{10,}(?=\))"),
)
_LIMIT: Final = re.compile(r"(recompile|cache.size|accumulated).*(limit|reached|exceeded)", re.IGNORECASE)


class Compiler:
    """Stamps compilations of the step's thread, and tells each one when its step is over."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._handler: Any = None
        self._is_open = self._was_busy = False
        self._since = self._ended = 0.0
        self._durations: dict[str, int] = {}  # ns by compile id: finished, not told yet
        self._num_all = self._num_again = 0
        self._num_limits = 0

    # -- Dynamo calls these while it holds a lock, and catches nothing -------------------------------------------------

    def start(self, *_: Any) -> None:
        """A compilation begins; one inside another has no call of its own."""
        pen = self._pen
        try:
            pen.compiles()
            if get_ident() == pen.owner and not self._is_open:
                self._since = pen.stamp(_OPEN)
                # What the compiler runs to see it (a backward of its own) is compilation.
                self._is_open, self._was_busy, pen.busy = True, pen.busy, True
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)

    def end(self, *args: Any) -> None:
        """It is over, or has failed."""
        pen = self._pen
        try:
            was_open, self._is_open = self._is_open, False
            if not was_open or get_ident() != pen.owner:
                return  # another thread's, or one that ended there: the step's end closes ours
            pen.busy = self._was_busy
            now = self._ended = pen.stamp(_CLOSE)
            self._num_all += 1
            identity = getattr(args[0], "compile_id", None) if args else None
            self._durations[str(identity or f"#{self._num_all}")] = int((now - self._since) * 1e9)
            pen.tend_soon()  # it is told behind this step
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)

    # -- off the hot path ----------------------------------------------------------------------------------------------

    def arrived(self) -> None:
        """torch._dynamo is loaded: asks to be called, also after a reset, which forgets every callback."""
        handler = getattr(sys.modules["torch._dynamo"], "callback_handler", None)
        if handler is None:
            self._pen.compiles()  # torch 2.2 and older do not say when: nothing of ours may be in the way
            return
        self._handler = handler
        self._num_limits = _num_limits()
        self._register()
        real: Callable[[], None] = handler.clear

        def clear() -> None:
            try:
                real()
            finally:
                self._register()

        handler.clear = clear

    def look(self) -> None:
        """Tells what was compiled since the last look, and whether something runs uncompiled for good now."""
        if self._handler is None:
            return
        durations, self._durations = self._durations, {}
        if durations:
            self._tell(durations)
        num_limits = _num_limits()
        if num_limits > self._num_limits:
            last = next((found for found in reversed(_metrics()) if found.reason), _Metric(None))
            self._send(0, last.function, last.reason, is_eager=True)
        self._num_limits = num_limits

    def remove(self) -> None:
        """Tells the rest, and asks for nothing more: whatever compiles from now on, nobody would hear of it."""
        self._pen.compiles()
        if self._handler is None:
            return
        if self._pen.owner is not None:  # else a forked child: the ring is its parent's
            self.look()
        handler, self._handler = self._handler, None
        handler.__dict__.pop("clear", None)
        for calls, ours in ((handler.start_callbacks, self.start), (handler.end_callbacks, self.end)):
            while ours in calls:
                calls.remove(ours)

    def _register(self) -> None:
        handler = self._handler
        if handler is None:
            return
        if self.start not in handler.start_callbacks:
            handler.register_start_callback(self.start)
        if self.end not in handler.end_callbacks:
            handler.register_end_callback(self.end)

    def _tell(self, durations: dict[str, int]) -> None:
        known = {found.identity: found for found in _metrics()}
        for identity, ns in durations.items():
            found = known.get(identity)
            is_again = _is_again(identity)
            self._num_again += is_again
            told = max(self._num_all, self._num_again)
            if told <= _MAX_TOLD or told & (told - 1) == 0:
                self._send(ns, found.function if found else "", found.reason if found else "", is_again=is_again)

    def _send(self, ns: int, function: str, reason: str, *, is_again: bool = False, is_eager: bool = False) -> None:
        pen = self._pen
        pen.ring.send(
            Compilation(
                step=pen.num_steps + bool(pen.in_step or pen.infers),
                at_ns=pen.clock_ns() if is_eager else int(self._ended * 1e9),  # behind the step; within it
                duration_ns=ns,
                num_compilations=self._num_all,
                num_recompilations=self._num_again,
                is_again=is_again,
                is_eager=is_eager,
                function=function[:_MAX_TEXT],
                reason=reason[:_MAX_TEXT],
            )
        )


class _Metric:
    """One entry of Dynamo's own list of its last 64 compilations."""

    def __init__(self, found: Any) -> None:
        self.identity = str(getattr(found, "compile_id", None) or "")
        self.function = str(getattr(found, "co_name", None) or "")
        self.reason = legible(str(getattr(found, "recompile_reason", None) or ""))


def legible(reason: str) -> str:
    """A reason of Dynamo's in one line, without the addresses, ids and reprs that tell its reader nothing."""
    line = " ".join(reason.split())
    for noise in _NOISE:
        line = noise.sub("", line)
    return line.strip()


def _metrics() -> list[_Metric]:
    read: Optional[Callable[[], Any]] = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
    return [_Metric(found) for found in read()] if read is not None else []


def _num_limits() -> int:
    """How often Dynamo gave a function up because of its limit of recompilations; no callback says so."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is None:
        return 0
    return sum(number for key, number in dict(counters.get("unimplemented") or {}).items() if _LIMIT.search(str(key)))


def _is_again(identity: str) -> bool:
    """Whether a compile id ("frame/recompile") is a recompilation."""
    again = identity.rpartition("/")[2]
    return "/" in identity and again.isdigit() and int(again) > 0


def install(pen: Pen) -> str:
    """Asks Dynamo to call, once it is loaded; returns why it cannot, or nothing."""
    torch = sys.modules["torch"]
    compiler = Compiler(pen)
    if pen.skip_code is not None:
        compiler.arrived()
    else:
        pen.on_arrival.append(compiler.arrived)
        pen.await_compiler()
    pen.late_looks.append(compiler.look)
    pen.guard.register(HOOK, compiler.remove)
    if not (Path(str(torch.__file__)).parent / "_dynamo" / "callback.py").exists():
        return f"torch {torch.__version__} does not say when it compiles"
    return ""
