"""Sees optimizer steps, through hooks around each of them."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Callable, Final

from traceml.recorder.hooks import steps
from traceml.recorder.pen import Pen
from traceml.wire import edges

HOOK: Final = "optimizer"
_OPEN: Final = edges.OPTIMIZER
_CLOSE: Final = edges.OPTIMIZER + edges.CLOSE


def install(pen: Pen) -> str:
    """Registers the hooks; returns why they cannot be, or nothing."""
    before, after = _make_hooks(pen, HOOK)
    remove = steps.register(before, after)
    if remove is None:
        return f"torch {sys.modules['torch'].__version__} steps its optimizers another way"
    pen.guard.register(HOOK, remove)
    return ""


def watch_one(pen: Pen, optimizer: Any) -> None:
    """Registers the hooks on one optimizer, where they are not on all; its pickles and copies do not hold them."""
    hooks = optimizer._optimizer_step_pre_hooks.values()  # noqa: SLF001  # what register_step_pre_hook fills
    if pen.guard.is_on(HOOK) or any(getattr(hook, "pen", None) is pen for hook in hooks):
        return
    name = f"{HOOK} {len(pen.guard.hooks)}"
    before, after = _make_hooks(pen, name)
    handles = [optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)]
    pen.guard.register(name, _removal(handles))


def _removal(handles: list[Any]) -> Callable[[], None]:
    def remove() -> None:
        while handles:
            handles.pop().remove()

    return remove


def _make_hooks(pen: Pen, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    nxt, mask, codes, stamps, clock = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock
    # In a compiled step() the hooks are inlined: the compiler folds this to True, and nothing of them is in a graph.
    is_compiling = getattr(getattr(sys.modules["torch"], "compiler", None), "is_compiling", never)

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if is_compiling() or get_ident() != pen.owner:
            return
        try:
            k = nxt() & mask
            codes[k] = _OPEN
            stamps[k] = clock()
        except Exception as error:  # noqa: BLE001  # guard
            pen.guard.fault(name, error)

    def after(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if is_compiling() or get_ident() != pen.owner:
            return
        try:
            k = nxt() & mask
            codes[k] = _CLOSE
            stamps[k] = clock()
        except Exception as error:  # noqa: BLE001  # guard
            pen.guard.fault(name, error)

    before.pen = pen  # type: ignore[attr-defined]  # by which an optimizer knows that it is watched
    pen.skip(before)
    pen.skip(after)
    return before, after


def never() -> bool:
    """Torch cannot say whether it compiles."""
    return False
