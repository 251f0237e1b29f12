"""Sees backward: one wrap of the function through which `autograd.backward` and `autograd.grad` enter the engine."""

from __future__ import annotations

import sys
from typing import Any, Final

from traceml.recorder.pen import Pen
from traceml.wire import edges

HOOK: Final = "backward"
_NAME: Final = "_engine_run_backward"
_ENGINE: Final = "_execution_engine"
_OPEN: Final = edges.BACKWARD
_CLOSE: Final = edges.BACKWARD + edges.CLOSE
_SYNC_CLOSE: Final = edges.SYNC + edges.CLOSE


def install(pen: Pen) -> str:  # noqa: C901, PLR0915  # one hot path
    """Wraps the engine's entry; returns why it cannot be, or nothing."""
    torch = sys.modules["torch"]
    owner, name = torch.autograd, _NAME
    if not hasattr(owner, name):  # before torch 2.4
        owner, name = torch.autograd.Variable, _ENGINE
    real = getattr(owner, name, None)
    run = getattr(real, "run_backward", real)
    if run is None:
        return f"torch {torch.__version__} enters the autograd engine another way"
    nxt, mask, codes, stamps, clock, who = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock, pen.who
    inner = run  # with several ranks: what tells its waiting from its work
    waits = pen.waits

    def engine(*args: Any, **kwargs: Any) -> Any:
        if who() != pen.owner or pen.busy:
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
            answer = inner(*args, **kwargs)
        except BaseException:
            pen.raised()
            if waits.is_open:
                waits.is_open = False
                pen.stamp(_SYNC_CLOSE)
                pen.raised()
            raise
        else:
            if not waits.is_open and waits.by_node and kwargs.get("accumulate_grad", True):
                waits.by_node = False  # a backward without the node: the roots do, from now on
                pen.renew()
            return answer
        finally:
            pen.busy = False
            try:
                if waits.is_open:
                    waits.is_open = False
                    k = nxt() & mask
                    codes[k] = _SYNC_CLOSE
                    stamps[k] = clock()
                k = nxt() & mask
                codes[k] = _CLOSE
                stamps[k] = clock()
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)

    def renew() -> None:
        nonlocal nxt, clock, who, inner, waits
        nxt, clock, who, waits = pen.nxt, pen.clock, pen.who, pen.waits
        inner = run if pen.split_backward is None else pen.split_backward(run)

    ours = engine if run is real else _Engine(real, engine)

    def remove() -> None:
        if getattr(owner, name) is ours:
            setattr(owner, name, real)

    engine.__wrapped__ = run  # type: ignore[attr-defined]
    setattr(owner, name, ours)
    pen.skip(engine)
    pen.swaps.append(renew)
    pen.guard.register(HOOK, remove)
    return ""


class _Engine:
    """Stands for torch's engine object, whose `run_backward` cannot be replaced itself."""

    def __init__(self, real: Any, run_backward: Any) -> None:
        self._real, self.run_backward = real, run_backward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
