"""Sees copies of tensors from the host to an accelerator: `Tensor.to`, `Tensor.cuda` and `Tensor.copy_`.

Installed only once an accelerator is in use. A model's own move (`Module.to`, a loaded state) is no copy of a batch.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Final

from traceml.recorder.pen import Pen
from traceml.recorder.sight import out_of_sight
from traceml.wire import edges

HOOK: Final = "h2d"
_OPEN: Final = edges.H2D
_CLOSE: Final = edges.H2D + edges.CLOSE

IsCopy = Callable[[Any, tuple[Any, ...], dict[str, Any]], bool]


def install(pen: Pen, kind: str) -> None:
    """Puts wraps into `torch.Tensor`, which inherits these methods; `kind` is the type of the accelerator's devices."""
    torch = sys.modules["torch"]
    places = (("to", _make_to(torch, kind)), ("cuda", _make_cuda()), ("copy_", _make_copy(torch, kind)))
    wrapped: list[tuple[str, Any, Any]] = []

    def remove() -> None:
        while wrapped:
            name, before, ours = wrapped.pop()
            if torch.Tensor.__dict__.get(name) is ours:
                if before is None:
                    delattr(torch.Tensor, name)
                else:
                    setattr(torch.Tensor, name, before)

    pen.guard.register(HOOK, remove)
    for name, is_copy in places:
        ours = _make(pen, getattr(torch.Tensor, name), is_copy)
        wrapped.append((name, torch.Tensor.__dict__.get(name), ours))
        setattr(torch.Tensor, name, ours)


def _make(pen: Pen, real: Any, is_copy: IsCopy) -> Callable[..., Any]:
    nxt, mask, codes, stamps, clock, who = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock, pen.who
    # The compiler folds this to True and sees the original alone: graphs stay whole.
    is_compiling = getattr(getattr(sys.modules["torch"], "compiler", None), "is_compiling", _never)
    of_modules = sys.modules["torch.nn.modules.module"].__dict__

    @functools.wraps(real)
    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or who() != pen.owner or pen.is_copying:
            return real(self, *args, **kwargs)
        try:
            if not is_copy(self, args, kwargs) or sys._getframe(1).f_globals is of_modules:  # noqa: SLF001  # who calls
                return real(self, *args, **kwargs)
            k = nxt() & mask
            codes[k] = _OPEN
            stamps[k] = clock()
            pen.is_copying = True
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)
            return real(self, *args, **kwargs)
        try:
            return real(self, *args, **kwargs)
        except BaseException:
            pen.raised()
            raise
        finally:
            pen.is_copying = False
            try:
                k = nxt() & mask
                codes[k] = _CLOSE
                stamps[k] = clock()
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)

    def renew() -> None:
        nonlocal nxt, clock, who
        nxt, clock, who = pen.nxt, pen.clock, pen.who

    pen.swaps.append(renew)
    return move


def _make_to(torch: Any, kind: str) -> IsCopy:
    device_class, tensor_class, unseen = torch.device, torch.Tensor, out_of_sight()
    named = kind + ":"

    def is_copy(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        target = args[0] if args else kwargs.get("device", kwargs.get("tensor", kwargs.get("other")))
        if isinstance(target, device_class):
            if target.type != kind:
                return False
        elif isinstance(target, str):
            if target != kind and not target.startswith(named):
                return False
        elif isinstance(target, tensor_class):
            with unseen():
                return bool(target.device.type == kind and self.device.type == "cpu")
        elif not isinstance(target, int):
            return False  # a dtype
        with unseen():
            return bool(self.device.type == "cpu")

    return is_copy


def _make_cuda() -> IsCopy:
    unseen = out_of_sight()

    def is_copy(self: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
        with unseen():
            return bool(self.device.type == "cpu")

    return is_copy


def _make_copy(torch: Any, kind: str) -> IsCopy:
    tensor_class, unseen = torch.Tensor, out_of_sight()

    def is_copy(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        source = args[0] if args else kwargs.get("src")
        if not isinstance(source, tensor_class):
            return False
        with unseen():
            return bool(source.device.type == "cpu" and self.device.type == kind)

    return is_copy


def _never() -> bool:
    """Torch cannot say whether it compiles."""
    return False
