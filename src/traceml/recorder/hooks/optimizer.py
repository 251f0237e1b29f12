"""Sees optimizer steps, through torch's own global step hooks."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Final

from traceml.recorder.pen import Pen
from traceml.wire import edges

HOOK: Final = "optimizer"
_OPEN: Final = edges.OPTIMIZER
_CLOSE: Final = edges.OPTIMIZER + edges.CLOSE


def install(pen: Pen) -> str:
    """Registers the hooks; returns why they cannot be, or nothing."""
    torch = sys.modules["torch"]
    module = sys.modules["torch.optim.optimizer"]
    if not hasattr(module, "register_optimizer_step_pre_hook"):
        return f"torch {torch.__version__} has no global optimizer hooks; torch 2.0 or newer is needed to see them"
    nxt, mask, codes, stamps, clock = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock
    # In a compiled step() the hooks are inlined: the compiler folds this to True, and nothing of them is in a graph.
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", _never)

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if is_compiling() or get_ident() != pen.owner:
            return
        try:
            k = nxt() & mask
            codes[k] = _OPEN
            stamps[k] = clock()
        except Exception as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)

    def after(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if is_compiling() or get_ident() != pen.owner:
            return
        try:
            k = nxt() & mask
            codes[k] = _CLOSE
            stamps[k] = clock()
        except Exception as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)

    handles = [
        module.register_optimizer_step_pre_hook(before),
        module.register_optimizer_step_post_hook(after),
    ]

    def remove() -> None:
        while handles:
            handles.pop().remove()

    pen.skip(before)
    pen.skip(after)
    pen.guard.register(HOOK, remove)
    return ""


def _never() -> bool:
    """Torch cannot say whether it compiles."""
    return False
