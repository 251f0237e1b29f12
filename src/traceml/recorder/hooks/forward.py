"""Sees a traced model's outermost call, through the slot that `Module.compile()` uses.

`nn.Module.__call__` looks into the instance's `_compiled_call_impl` first, and `__getstate__` drops it: deep copies,
pickles and saved models are clean, even in the middle of a step. What stands there holds the model weakly and never
raises. Before torch 2.1 there is no slot, and the instance's `forward` is taken (see method.py).
"""

from __future__ import annotations

import sys
import weakref
from types import FunctionType
from typing import Any, Callable, Final, Iterator, Optional

from traceml.recorder.guard import say
from traceml.recorder.hooks import copies
from traceml.recorder.hooks.stand import METHOD, SLOT, ByFrame, ByMethod, Stand
from traceml.recorder.pen import Pen
from traceml.recorder.sight import out_of_sight
from traceml.schema import phases
from traceml.schema.model import ModelInfo
from traceml.wire import edges

__all__ = ["HOOK", "SLOT", "attach", "attach_method", "attached", "detach", "install"]

HOOK: Final = "forward"
_FORWARD: Final = edges.FORWARD
_NO_GRAD: Final = edges.FORWARD_NO_GRAD
_EVAL: Final = edges.EVAL
_CLOSE: Final = edges.CLOSE
_NUM_QUIET: Final = 64  # forwards without an update
_SCRIPTED: Final = "the call of a TorchScript module does not pass where TraceML could watch it"


def _make_class(pen: Pen, grad_mode: Callable[[], bool]) -> type[Stand]:  # noqa: C901  # one hot path
    nxt, mask, codes, stamps, clock, who = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock, pen.who

    class SessionForward(Stand):
        __slots__ = ()

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Calls what would have been called without us, between two edges."""
            call = self.call
            if call is None:
                call = self.model()._call_impl  # type: ignore[union-attr]  # noqa: SLF001  # as Module.__call__ does
            if pen.busy or who() != pen.owner or not (pen.in_step or pen.infers or not grad_mode()):
                return call(*args, **kwargs)
            try:
                if pen.in_step:
                    code = _FORWARD if grad_mode() else _NO_GRAD
                elif pen.infers:
                    code = _FORWARD if grad_mode() else _EVAL
                    pen.num_forwards = num_forwards = pen.num_forwards + 1
                    if not num_forwards % _NUM_QUIET:
                        pen.tidy()  # no update publishes: an evaluation, or an optimizer that we do not see
                else:
                    code = _EVAL
                k = nxt() & mask
                codes[k] = code
                stamps[k] = clock()
                pen.busy = True
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)
                return call(*args, **kwargs)
            try:
                return call(*args, **kwargs)
            except BaseException:
                pen.raised()
                raise
            finally:
                pen.busy = False
                try:
                    k = nxt() & mask
                    codes[k] = code + _CLOSE
                    stamps[k] = clock()
                except BaseException as error:  # noqa: BLE001  # guard
                    pen.guard.fault(HOOK, error)

    def renew() -> None:
        nonlocal nxt, clock, who
        nxt, clock, who = pen.nxt, pen.clock, pen.who

    pen.swaps.append(renew)
    return SessionForward


def _make_method_class(forward_class: type[Stand]) -> type[Stand]:
    class SessionMethod(forward_class):  # type: ignore[misc, valid-type]  # a session's own
        # In an instance's `forward`; what asks it for a signature, a name or a source hears the real one's.
        __slots__ = ()

        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            return type(self.__wrapped__)  # inspect and TorchScript look for a method's source, not for an object's

        @property
        def __wrapped__(self) -> Any:
            model = self.model()
            return self.call if self.before is not None else type(model).forward.__get__(model)

        @property
        def __doc__(self) -> Any:  # type: ignore[override]
            return self.__wrapped__.__doc__

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__wrapped__, name)

    return SessionMethod


class Attached:
    """The models in which we stand, weakly, by identity: a model may be unhashable."""

    def __init__(self) -> None:
        self._models: dict[int, weakref.ref[Any]] = {}

    def __contains__(self, model: object) -> bool:
        reference = self._models.get(id(model))
        return reference is not None and reference() is model

    def __iter__(self) -> Iterator[Any]:
        """Those that live."""
        return iter([model for model in (reference() for reference in self._models.values()) if model is not None])

    def add(self, model: Any) -> None:
        """One more; dead ones are forgotten now and then."""
        if len(self._models) & (len(self._models) + 1) == 0:
            self._models = {key: reference for key, reference in self._models.items() if reference() is not None}
        self._models[id(model)] = weakref.ref(model)

    def discard(self, model: Any) -> None:
        """One less."""
        self._models.pop(id(model), None)

    def clear(self) -> None:
        """Gives every place back as it was, where ours still stands there."""
        for model in self:
            copies.clear(model.__dict__)
        self._models = {}


attached: Final = Attached()


def install(pen: Pen) -> str:
    """Prepares the slot; returns why forward cannot be seen on this torch, or nothing."""
    torch = sys.modules["torch"]
    recursive = sys.modules.get("torch.jit._recursive")
    ignored: list[str] = getattr(recursive, "ignored_attributes", [])
    is_new_name = SLOT not in ignored
    if is_new_name:
        ignored.append(SLOT)  # torch.jit.script of a traced model would fail on the unknown attribute
    pen.forward_class = _make_class(pen, torch.is_grad_enabled)
    pen.method_class = _make_method_class(pen.forward_class)
    pen.slot = SLOT
    if not copies.has_slot(torch):
        pen.slot, pen.forward_class = METHOD, pen.method_class
    remove_copies = copies.install(torch)
    for ours in (pen.forward_class, ByFrame, ByMethod):
        pen.skip(ours.__call__)

    def remove() -> None:
        attached.clear()
        remove_copies()
        if is_new_name and SLOT in ignored:
            ignored.remove(SLOT)

    pen.guard.register(HOOK, remove)
    return ""


def attach(pen: Pen, model: Any, *, asked: bool = False) -> None:
    """Stands in a model, in what a wrapper (DDP, a compiled module) wraps, and in the compiled wrappers around it.

    Args:
        pen: Of the open session.
        model: What `trace_step` was given; anything but a module is passed over.
        asked: By `wrap_forward`; else only where every traced model is to be seen.
    """
    torch = sys.modules["torch"]
    if not isinstance(model, torch.nn.Module):
        pen.say_once(HOOK, f"a {type(model).__name__} is no model whose forward can be seen: trace_step(model, ...).")
        return
    if not (pen.sees_models or asked) or not pen.guard.is_on(HOOK):
        return
    if isinstance(model, torch.jit.ScriptModule):
        _pass_over(pen)
        return
    chain = (model, *_wrapped(model))
    is_new = chain[-1] not in attached
    for module in (*chain, *pen.wrappers_of(chain)):
        attach_one(pen, module)
    if is_new:
        pen.ring.send(ModelInfo(type(chain[-1]).__name__, _num_parameters(chain[-1])))
    pen.look_for_ranks()


def _num_parameters(model: Any) -> Optional[int]:
    """Shared ones count once; None where some are not made yet, or a class of the user's has its own mind."""
    try:
        with out_of_sight()():
            return sum(int(parameter.numel()) for parameter in sys.modules["torch"].nn.Module.parameters(model))
    except Exception:  # noqa: BLE001  # guard: the user's own code may answer
        return None


def attach_one(pen: Pen, module: Any) -> None:
    """Stands in one module, where we do not yet."""
    if pen.slot == METHOD:
        attach_method(pen, module)
        return
    found = module.__dict__.get(SLOT)
    if type(found) is pen.forward_class:
        return
    call = found.before if isinstance(found, Stand) else found
    if call is None and copies.copies_itself(type(module)):
        call = ByFrame(module)
    module.__dict__[SLOT] = pen.forward_class(module, call)
    attached.add(module)


def attach_method(pen: Pen, module: Any) -> None:
    """Stands in an instance's `forward`, where that cannot harm: no compiled wrapper, no class that copies itself."""
    kind = type(module)
    if pen.has_compiled:
        return
    is_plain = isinstance(kind.forward, FunctionType) and kind.forward is not sys.modules["torch"].nn.Module.forward
    if not is_plain or copies.copies_itself(kind) or "_orig_mod" in module.__dict__.get("_modules", {}):
        return
    found = module.__dict__.get(METHOD)
    if type(found) is pen.method_class:
        return
    before = found.before if isinstance(found, Stand) else found
    copies.watch_states(sys.modules["torch"])
    module.__dict__[METHOD] = pen.method_class(module, ByMethod(module) if before is None else before)
    attached.add(module)


def _pass_over(pen: Pen) -> None:
    """A ScriptModule: said once a run, and in the report."""
    if phases.FORWARD not in pen.unseen:
        say(f"{_SCRIPTED}; its forward is in the step's rest.")
        pen.tell(unseen={phases.FORWARD: _SCRIPTED})


def detach(pen: Pen, model: Any) -> None:
    """Gives back what `attach` took, where ours still stands."""
    chain = (model, *_wrapped(model))
    for module in (*chain, *pen.wrappers_of(chain)):
        copies.clear(module.__dict__)
        attached.discard(module)


def _wrapped(model: Any) -> tuple[Any, ...]:
    """The modules inside a wrapper: `.module` of DDP and its kin, `_orig_mod` of a compiled module."""
    inside, found = [], model
    for _ in range(4):
        modules = found.__dict__.get("_modules", {})
        found = modules.get("_orig_mod", modules.get("module") if len(modules) == 1 else None)  # never its truth: len()
        if found is None:
            break
        inside.append(found)
    return tuple(inside)
