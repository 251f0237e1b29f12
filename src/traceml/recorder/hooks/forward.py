"""Sees a traced model's outermost call, through the slot that `Module.compile()` uses.

`nn.Module.__call__` looks into the instance's `_compiled_call_impl` first, and `__getstate__` drops it: deep copies,
pickles and saved models are clean, even in the middle of a step. The callable holds the model weakly and never raises.
"""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from typing import Any, Callable, Final

from traceml.recorder.pen import Pen
from traceml.wire import edges

SLOT: Final = "_compiled_call_impl"
HOOK: Final = "forward"
_FORWARD: Final = edges.FORWARD
_NO_GRAD: Final = edges.FORWARD_NO_GRAD
_EVAL: Final = edges.EVAL
_CLOSE: Final = edges.CLOSE


class Forward:
    """What stands in a traced model's slot. Copies and pickles of it are None: nothing of ours travels.

    A session's own subclass has the `__call__`.
    """

    __slots__ = ("__weakref__", "call", "model")

    def __init__(self, model: Any, call: Any) -> None:
        self.model = weakref.ref(model)
        self.call = call  # what stood in the slot before: the user's own compiled call, or None

    def __copy__(self) -> None:
        return None

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def __reduce__(self) -> Any:
        return type(None), ()


def _make_class(pen: Pen, grad_mode: Callable[[], bool]) -> type[Forward]:
    nxt, mask, codes, stamps, clock = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock

    class SessionForward(Forward):
        __slots__ = ()

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Calls what would have been called without us, between two edges."""
            call = self.call
            if call is None:
                model: Any = self.model()
                call = type(model)._call_impl.__get__(model)  # noqa: SLF001  # as Module.__call__ does
            if pen.busy or get_ident() != pen.owner or (not pen.in_step and grad_mode()):
                return call(*args, **kwargs)
            try:
                code = _EVAL if not pen.in_step else _FORWARD if grad_mode() else _NO_GRAD
                k = nxt() & mask
                codes[k] = code
                stamps[k] = clock()
                pen.busy = True
            except Exception as error:  # noqa: BLE001  # guard
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
                except Exception as error:  # noqa: BLE001  # guard
                    pen.guard.fault(HOOK, error)

    return SessionForward


class Attached:
    """The models whose slot holds a Forward, weakly."""

    def __init__(self) -> None:
        self.models: weakref.WeakSet[Any] = weakref.WeakSet()

    def remove(self) -> None:
        """Gives every slot back as it was, where it still holds ours."""
        for model in list(self.models):
            found = model.__dict__.get(SLOT)
            if isinstance(found, Forward):
                _put_back(model, found)
        self.models = weakref.WeakSet()


_attached = Attached()


def _put_back(model: Any, ours: Forward) -> None:
    before = ours.call
    if before is None:
        del model.__dict__[SLOT]
    else:
        model.__dict__[SLOT] = before


def install(pen: Pen) -> str:
    """Prepares the slot; returns why forward cannot be seen on this torch, or nothing."""
    torch = sys.modules["torch"]
    if not hasattr(torch.nn.Module, SLOT):
        return f"torch {torch.__version__} has no call slot; torch 2.1 or newer is needed to see forward"
    recursive = sys.modules.get("torch.jit._recursive")
    ignored = getattr(recursive, "ignored_attributes", None)
    if ignored is not None and SLOT not in ignored:
        ignored.append(SLOT)  # torch.jit.script of a traced model would fail on the unknown attribute
    pen.forward_class = _make_class(pen, torch.is_grad_enabled)
    pen.skip(pen.forward_class.__call__)
    pen.guard.register(HOOK, _attached.remove)
    return ""


def attach(pen: Pen, model: Any) -> None:
    """Puts a Forward into the slot of a model, and of what a wrapper (DDP, a compiled module) wraps."""
    torch = sys.modules["torch"]
    if not pen.guard.is_on(HOOK) or not isinstance(model, torch.nn.Module):
        return
    if isinstance(model, torch.jit.ScriptModule):
        return  # compiled to TorchScript: its call does not pass the slot
    for module in (model, *_wrapped(model)):
        found = module.__dict__.get(SLOT)
        if type(found) is not pen.forward_class:
            module.__dict__[SLOT] = pen.forward_class(module, found.call if isinstance(found, Forward) else found)
            _attached.models.add(module)


def _wrapped(model: Any) -> tuple[Any, ...]:
    """The modules inside a wrapper: `.module` of DDP and its kin, `_orig_mod` of a compiled module."""
    inside, found = [], model
    for _ in range(4):
        modules = found.__dict__.get("_modules", {})
        found = modules.get("_orig_mod") or (modules.get("module") if len(modules) == 1 else None)
        if found is None:
            break
        inside.append(found)
    return tuple(inside)
