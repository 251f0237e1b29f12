"""Sees backward: one wrap of the function through which `autograd.backward` and `autograd.grad` enter the engine."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Final

from traceml.recorder.pen import Pen
from traceml.wire import edges

HOOK: Final = "backward"
_NAME: Final = "_engine_run_backward"
_OPEN: Final = edges.BACKWARD
_CLOSE: Final = edges.BACKWARD + edges.CLOSE


def install(pen: Pen) -> str:
    """Wraps the engine's entry; returns why it cannot be, or nothing."""
    torch = sys.modules["torch"]
    module = torch.autograd
    if not hasattr(module, _NAME):
        return f"torch {torch.__version__} enters the autograd engine another way"
    run = getattr(module, _NAME)
    nxt, mask, codes, stamps, clock = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock

    def engine(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != pen.owner or pen.busy:
            return run(*args, **kwargs)
        try:
            k = nxt() & mask
            codes[k] = _OPEN
            stamps[k] = clock()
            pen.busy = True
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)
            return run(*args, **kwargs)
        try:
            return run(*args, **kwargs)
        except BaseException:
            pen.raised()
            raise
        finally:
            pen.busy = False
            try:
                k = nxt() & mask
                codes[k] = _CLOSE
                stamps[k] = clock()
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)

    def renew() -> None:
        nonlocal nxt, clock
        nxt, clock = pen.nxt, pen.clock

    def remove() -> None:
        if getattr(module, _NAME) is engine:
            setattr(module, _NAME, run)

    engine.__wrapped__ = run  # type: ignore[attr-defined]
    setattr(module, _NAME, engine)
    pen.skip(engine)
    pen.swaps.append(renew)
    pen.guard.register(HOOK, remove)
    return ""
