"""Waits for the signs that a process trains: an optimizer is made, a backward begins, a `trace_step` is entered.

Launchers, DataLoader workers and other helpers show none of them, so they stay as silent as they are without us.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Final, Optional

from traceml.recorder import step
from traceml.recorder.guard import say
from traceml.recorder.interrupts import let_pass
from traceml.recorder.tracebacks import conceal

_WORKER: Final = "torch.utils.data._utils.worker"
_MADE: Final = ("_patch_step_function", "_hook_for_profile")  # what `Optimizer.__init__` calls first, by torch version
_ENGINE: Final = "_engine_run_backward"

_removals: list[Callable[[], None]] = []


def arm(*, on_sign: Callable[[bool], None], optimizers: bool = True) -> None:
    """Calls `on_sign(is_step)` at the next sign, once; `is_step` is false when an optimizer was merely made.

    Args:
        on_sign: What it raises is told in one line, and never raised into training.
        optimizers: Whether a new optimizer is a sign.
    """
    disarm()

    def seen(*, is_step: bool) -> None:
        disarm()
        try:
            if not _is_loader_worker():
                on_sign(is_step)
        except Exception as error:  # noqa: BLE001  # guard
            let_pass(error)
            say(f"this process is not recorded: {type(error).__name__}: {error}")

    _watch_backward(seen)
    step.on_first = lambda: seen(is_step=True)  # without a session: with one, no trace_step asks
    if optimizers:
        _watch_optimizers(seen)


def disarm() -> None:
    """Takes off what waits."""
    step.on_first = None
    while _removals:
        _removals.pop()()


def _watch_backward(seen: Callable[..., None]) -> None:
    autograd = sys.modules["torch"].autograd
    name = _ENGINE if hasattr(autograd, _ENGINE) else "backward"
    real = getattr(autograd, name)

    def first_backward(*args: Any, **kwargs: Any) -> Any:
        seen(is_step=True)
        run = getattr(autograd, name)
        try:
            return (real if run is first_backward else run)(*args, **kwargs)
        except BaseException:
            conceal()
            raise

    _replace(autograd, name, real, first_backward)


def _watch_optimizers(seen: Callable[..., None]) -> None:
    optimizer_class = sys.modules["torch"].optim.Optimizer
    name = next((name for name in _MADE if hasattr(optimizer_class, name)), None)
    if name is None:
        return  # a torch that makes optimizers another way: the first backward tells
    real = optimizer_class.__dict__[name]

    def making(self: Any) -> Any:
        seen(is_step=False)
        run = optimizer_class.__dict__[name]  # before torch 2.0 the optimizer hook stands there from now on
        return (real if run is making else run)(self)

    _replace(optimizer_class, name, real, making)


def _replace(owner: Any, name: str, real: Any, ours: Any) -> None:
    def put_back() -> None:
        if owner.__dict__.get(name) is ours:
            setattr(owner, name, real)

    ours.__wrapped__, ours.__qualname__, ours.__doc__ = real, real.__qualname__, real.__doc__
    setattr(owner, name, ours)
    _removals.append(put_back)


def _is_loader_worker() -> bool:
    worker: Optional[Any] = sys.modules.get(_WORKER)
    return getattr(worker, "_worker_info", None) is not None
