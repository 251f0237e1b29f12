"""Opens a step, closes it into the ring, and marks regions and counts: what users call in their loop."""

from __future__ import annotations

import sys
from threading import get_ident
from types import TracebackType
from typing import Any, Callable, Final, Optional, Union

from traceml.recorder import compiling
from traceml.recorder.guard import say
from traceml.recorder.hooks import inference
from traceml.recorder.hooks.forward import HOOK as FORWARD
from traceml.recorder.hooks.forward import attach
from traceml.recorder.nested import Again, leave_again
from traceml.recorder.numbers import write_count, write_step
from traceml.recorder.pen import HOUSE, NEVER, Pen
from traceml.recorder.tracebacks import strip
from traceml.schema.records import StepFailure
from traceml.wire import edges
from traceml.wire.ring import PUBLISHED

_STEP_END: Final = edges.STEP_END
_STEP_FAILED: Final = edges.STEP_FAILED
_STEP_BEGIN: Final = edges.STEP_BEGIN
_MAX_FAILURES: Final = 100  # whose exception is named; all are counted
_HELD_BY_US: Final = 2  # references: the pen's, and the argument of who counts them
_STEP: Final = "step"
_REGION: Final = "region"

#: The pen of the open session; None: calls do nothing.
current: Optional[Pen] = None
#: Why not, to be said once; None: it is fine to be silent.
reason: Optional[str] = "trace_step() without init(): nothing is recorded. Call traceml.init() before the loop."

#: Called by a trace_step without a session, once: where a process of a run waits for its first sign of training.
on_first: Optional[Callable[[], None]] = None


def begin_session(pen: Optional[Pen], why_not: Optional[str] = None) -> None:
    """Makes `pen` the one that trace_step, region and count write with; None switches them off."""
    global current, reason  # a global read is the cheapest a step can do
    current, reason = pen, why_not
    enter, leave = (_inert_enter, _inert_leave) if pen is None else (_make_enter(pen), _make_leave(pen))
    if pen is not None and not pen.sees_models:
        enter = _make_blind_enter(enter)
    if pen is not None and pen.infers:
        enter = _make_first_enter(pen, enter)
    if pen is not None and pen.stop_at >= 0:
        leave = _make_last_leave(pen, leave)
    compiling.begin(pen, lambda: _exchange(_enter, _leave), (enter, leave, *_OURS))
    _exchange(enter, leave)
    if pen is not None:
        pen.guard.register(_STEP, lambda: begin_session(None))
        pen.guard.register(_REGION, lambda: _no_region(pen))
        pen.guard.register(HOUSE, lambda: _no_house(pen))


def _exchange(enter: Callable[[trace_step], trace_step], leave: Callable[[trace_step, Any, Any, Any], None]) -> None:
    """Puts these in trace_step's place, or what asks first whether the call is being compiled, and so for region."""
    global _enter, _leave
    _enter, _leave = enter, leave
    if compiling.may_be:
        region.__enter__, region.__exit__ = _ask_enter_region, _ask_leave_region  # type: ignore[method-assign]
        enter, leave = _ask_enter, _ask_leave
    else:
        region.__enter__, region.__exit__ = _enter_region, _leave_region  # type: ignore[method-assign]
    # Closures over one session's names cost two thirds of the same with attributes.
    trace_step.__enter__, trace_step.__exit__ = enter, leave  # type: ignore[method-assign]


def _ask_enter(step: trace_step) -> trace_step:
    return step if compiling.is_so() else _enter(step)


def _ask_leave(step: trace_step, kind: Any, error: Any, trace: Any) -> None:
    if not compiling.is_so():
        _leave(step, kind, error, trace)


def _ask_enter_region(named: region) -> region:
    return named if compiling.is_so() else _enter_region(named)


def _ask_leave_region(named: region, kind: Any, error: Any, trace: Any) -> None:
    if not compiling.is_so():
        _leave_region(named, kind, error, trace)


class trace_step:  # noqa: N801  # reads as a statement: `with traceml.trace_step(model):`
    """Marks one training step: `with traceml.trace_step(model):` around its forward, backward and optimizer.

    The step's period runs from the end of the step before to the end of this one, so nothing between is lost.

    Args:
        models: The models whose forward is to be seen; none is fine, then forward is part of the step's rest.
        step: The script's own step number, shown beside ours (a resumed run).
    """

    __slots__ = ("_models", "_pen", "_step")

    def __init__(self, *models: Any, step: Optional[int] = None) -> None:
        self._models, self._step = models, step
        self._pen: Optional[Union[Pen, Again]] = None  # set while this is the outermost step

    def __enter__(self) -> trace_step:
        return _inert_enter(self)

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Ends the step; an exception goes on as it came."""


def _inert_enter(step: trace_step) -> trace_step:
    global reason  # said once
    if reason is not None:
        compiling.leave_alone(_OURS)
    if on_first is not None:
        on_first()
        if current is not None:
            return type(step).__enter__(step)
    if reason is not None:
        line, reason = reason, None
        say(line)
    return step


def _inert_leave(_step: trace_step, _kind: Any, _error: Any, _trace: Any) -> None:
    """No session: nothing ends."""


def _make_enter(pen: Pen) -> Callable[[trace_step], trace_step]:
    nxt, mask, codes, stamps, clock, who = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock, pen.who
    forward_class, slot = pen.forward_class, pen.slot

    def enter(self: trace_step) -> trace_step:
        try:
            for model in self._models:
                try:
                    if model.__dict__[slot].__class__ is forward_class:
                        continue
                except (AttributeError, KeyError):
                    pass
                _attach(pen, model)  # new, or its slot was taken by a Module.compile() since
            if (pen.in_step and not _was_abandoned(pen)) or (who() != pen.owner and not pen.adopt()):
                self._pen = Again(self._pen, pen)
                return self  # nested, or another thread while a step is open: one step is one step
            if self._step is not None:
                write_step(pen, self._step)
            self._pen = pen
            k = nxt() & mask
            codes[k] = _STEP_BEGIN
            stamps[k] = clock()
            pen.in_step = self
        except BaseException as error:  # noqa: BLE001  # guard
            _not_entered(pen, self, error)
        return self

    def renew() -> None:
        nonlocal nxt, clock, who
        nxt, clock, who = pen.nxt, pen.clock, pen.who

    pen.swaps.append(renew)
    return enter


def _make_blind_enter(enter: Callable[[trace_step], trace_step]) -> Callable[[trace_step], trace_step]:
    """No model's forward is to be seen: none is looked for at each step."""

    def enter_blind(self: trace_step) -> trace_step:
        self._models = ()
        return enter(self)

    return enter_blind


def _make_first_enter(pen: Pen, enter: Callable[[trace_step], trace_step]) -> Callable[[trace_step], trace_step]:
    """The first `trace_step` ends the inference of steps for good."""

    def enter_first(self: trace_step) -> trace_step:
        try:
            _exchange(enter, _leave)
            pen.guard.remove(inference.HOOK)
            pen.num_steps = 0
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(inference.HOOK, error)
        return enter(self)

    return enter_first


def _make_leave(pen: Pen) -> Callable[[trace_step, Any, Any, Any], None]:
    nxt, mask, codes, stamps, clock, header = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock, pen.ring.header

    def leave(self: trace_step, kind: Any, raised: Any, _trace: Any) -> None:
        if self._pen is not pen:
            if self._pen.__class__ is Again:
                leave_again(pen, self, _STEP)
            return
        self._pen = None
        try:
            j = nxt()
            k = j & mask
            codes[k] = _STEP_END if kind is None else _STEP_FAILED
            now = stamps[k] = clock()
            header[PUBLISHED] = j + 1
            pen.num_steps += 1
            pen.in_step = pen.busy = False
            if now >= pen.due:
                pen.tend(now)
            if kind is not None:
                strip(raised)
                _name_failure(pen, kind)
        except BaseException as error:  # noqa: BLE001  # guard
            _not_left(pen, error)

    def renew() -> None:
        nonlocal nxt, clock
        nxt, clock = pen.nxt, pen.clock

    pen.swaps.append(renew)
    return leave


def _make_last_leave(
    pen: Pen, leave: Callable[[trace_step, Any, Any, Any], None]
) -> Callable[[trace_step, Any, Any, Any], None]:
    """The end of the last step that was asked for is the recording's."""

    def leave_or_stop(self: trace_step, kind: Any, raised: Any, trace: Any) -> None:
        leave(self, kind, raised, trace)
        try:
            if pen.num_steps == pen.stop_at:
                pen.stop()
        except BaseException as error:  # noqa: BLE001  # guard
            _not_left(pen, error)

    return leave_or_stop


def _not_entered(pen: Pen, step: trace_step, error: BaseException) -> None:
    """A step could not be opened; what is raised out of `__enter__` has no `__exit__`."""
    if not pen.in_step:
        step._pen = None  # noqa: SLF001  # ours
    pen.guard.fault(_STEP, error)


def _not_left(pen: Pen, error: BaseException) -> None:
    """A step could not be closed, or what is done behind it could not; what is raised interrupted no later step."""
    try:
        pen.guard.fault(_STEP, error)
    finally:
        if pen.in_step:
            _end_late(pen)


def _was_abandoned(pen: Pen) -> bool:
    """Whether the open step is nobody's any more, and is closed here: a signal came when its `__exit__` began."""
    if get_ident() != pen.owner or sys.getrefcount(pen.in_step) > _HELD_BY_US:
        return False
    pen.unwind()
    _end_late(pen)
    return True


def _end_late(pen: Pen) -> None:
    pen.in_step = pen.busy = False
    pen.stamp(_STEP_FAILED)
    pen.num_steps += 1
    pen.publish()


def _no_region(pen: Pen) -> None:
    """Regions are not marked any more: each name has the code that is none."""
    pen.regions = _NoRegions()


class _NoRegions(dict[str, int]):
    def get(self, _name: str, _default: Any = None) -> Any:
        return 0


def _attach(pen: Pen, model: Any) -> None:
    """A model's forward is seen from now on; if that fails, its step still is."""
    try:
        attach(pen, model)
    except BaseException as error:  # noqa: BLE001  # guard
        pen.guard.fault(FORWARD, error)


def _no_house(pen: Pen) -> None:
    """Edges are published as before, but not sealed any more."""
    pen.house_due = NEVER


def _name_failure(pen: Pen, kind: type[BaseException]) -> None:
    pen.num_failures += 1
    if pen.num_failures <= _MAX_FAILURES:
        pen.ring.send(StepFailure(pen.num_steps, kind.__name__))


class region:  # noqa: N801  # reads as a statement: `with traceml.region("augment"):`
    """Gives a stretch of the script's own work a name of its own in the step's division; at most 16 names a run.

    Args:
        name: What the verdict will call it.
    """

    __slots__ = ("_code", "_name", "_pen")

    def __init__(self, name: str) -> None:
        self._name = name
        self._code = 0
        self._pen: Optional[Pen] = None

    def __enter__(self) -> region:
        pen = current
        if pen is None or pen.who() != pen.owner:
            return self
        try:
            code = pen.regions.get(self._name)
            if code is None:
                code = pen.region_code(str(self._name))
            if code:
                self._pen, self._code = pen, code
                k = pen.nxt() & pen.mask
                pen.codes[k] = code
                pen.stamps[k] = pen.clock()
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(_REGION, error)
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        pen = self._pen
        if pen is None:
            return
        self._pen = None
        try:
            if kind is not None:
                pen.raised()
            k = pen.nxt() & pen.mask
            pen.codes[k] = self._code + edges.CLOSE
            pen.stamps[k] = pen.clock()
        except BaseException as fault:  # noqa: BLE001  # guard
            pen.guard.fault(_REGION, fault)


def count(*, samples: Optional[int] = None, tokens: Optional[int] = None) -> None:
    """Counts samples and tokens of the open step by hand, where they cannot be read off the batch.

    From the first call on, only what is counted by hand makes the throughput.

    Args:
        samples: How many the step has consumed; several calls add up.
        tokens: Likewise.

    What is not a whole number of at least 0 is said once and not counted: nothing here ends a training.
    """
    if compiling.may_be and compiling.is_so():
        return
    pen = current
    if pen is None or pen.who() != pen.owner:
        return
    for code, name, number in (
        (edges.COUNTED_SAMPLES, "samples", samples),
        (edges.COUNTED_TOKENS, "tokens", tokens),
    ):
        if number is not None:
            try:
                write_count(pen, code, name, number)
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault("count", error)


_enter: Callable[[trace_step], trace_step] = _inert_enter
_leave: Callable[[trace_step, Any, Any, Any], None] = _inert_leave
_enter_region, _leave_region = region.__enter__, region.__exit__
_OURS: Final = (
    *(
        trace_step.__init__,
        _inert_enter,
        _inert_leave,
        _ask_enter,
        _ask_leave,
        _attach,
        _name_failure,
        write_step,
        write_count,
    ),
    *(region.__init__, _ask_enter_region, _ask_leave_region, _enter_region, _leave_region, count, compiling.is_so),
)
_exchange(_enter, _leave)
compiling.leave_alone(_OURS)
