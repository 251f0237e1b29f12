"""Sees optimizer steps, through torch's own global step hooks, or before torch 2.0 through their classes.

In a compiled step() the hooks are inlined: they ask whether that is so, the compiler folds the answer to True, and
nothing of them is in a graph. The question costs a tenth of all our hooks: it is asked only once somebody compiles.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Final, Optional

from traceml.recorder.hooks import steps
from traceml.recorder.hooks.compiler import HOOK as COMPILER
from traceml.recorder.pen import Pen
from traceml.wire import edges

HOOK: Final = "optimizer"
_OPEN: Final = edges.OPTIMIZER
_CLOSE: Final = edges.OPTIMIZER + edges.CLOSE


def install(pen: Pen) -> str:
    """Registers the hooks; returns why they cannot be, or nothing."""
    before, after = _make_hooks(pen, HOOK)
    remove = on_each_step(pen, before, after)
    if remove is None:
        return f"torch {sys.modules['torch'].__version__} steps its optimizers another way"
    pen.guard.register(HOOK, remove)
    return ""


def on_each_step(pen: Pen, before: Optional[steps.Hook], after: steps.Hook) -> Optional[Callable[[], None]]:
    """Calls these around each step of each optimizer; a step that raises has no `after`.

    Returns:
        What takes them off again; None where this torch gives no way in.
    """
    module = sys.modules["torch.optim.optimizer"]
    if not hasattr(module, "register_optimizer_step_post_hook"):
        return steps.register(module.Optimizer, before, after)
    handles = [] if before is None else [register(pen, module.register_optimizer_step_pre_hook, before)]
    return _removal([*handles, register(pen, module.register_optimizer_step_post_hook, after)])


def watch_one(pen: Pen, optimizer: Any) -> None:
    """Registers the hooks on one optimizer, where they are not on all; its pickles and copies do not hold them."""
    hooks = optimizer._optimizer_step_pre_hooks.values()  # noqa: SLF001  # what register_step_pre_hook fills
    if pen.guard.is_on(HOOK) or any(getattr(hook, "pen", None) is pen for hook in hooks):
        return
    name = f"{HOOK} {len(pen.guard.hooks)}"
    before, after = _make_hooks(pen, name)
    handles = [
        register(pen, optimizer.register_step_pre_hook, before),
        register(pen, optimizer.register_step_post_hook, after),
    ]
    pen.guard.register(name, _removal(handles))


def register(pen: Pen, register_hook: Callable[[Any], Any], hook: Callable[[Any, Any, Any], None]) -> Any:
    """Registers a hook of an optimizer's step, and before the first compilation what can be compiled in its place."""
    is_compiling = getattr(getattr(sys.modules["torch"], "compiler", None), "is_compiling", _never)

    def compilable(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            hook(optimizer, args, kwargs)

    for ours in (hook, compilable):
        ours.pen = pen  # type: ignore[attr-defined]  # by which an optimizer knows that it is watched
        pen.skip(ours)
    if pen.has_compiled or not pen.guard.is_on(COMPILER):
        return register_hook(compilable)
    handle = register_hook(hook)

    def exchange() -> None:
        hooks = handle.hooks_dict_ref()  # in place: somebody may be walking through them
        if hooks is not None and handle.id in hooks:
            hooks[handle.id] = compilable

    pen.on_compiled.append(exchange)
    return handle


def _removal(handles: list[Any]) -> Callable[[], None]:
    def remove() -> None:
        while handles:
            handles.pop().remove()

    return remove


def _make_hooks(pen: Pen, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    nxt, mask, codes, stamps, clock, who = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock, pen.who

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if who() != pen.owner:
            return
        try:
            k = nxt() & mask
            codes[k] = _OPEN
            stamps[k] = clock()
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(name, error)

    def after(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if who() != pen.owner:
            return
        try:
            k = nxt() & mask
            codes[k] = _CLOSE
            stamps[k] = clock()
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(name, error)

    def renew() -> None:
        nonlocal nxt, clock, who
        nxt, clock, who = pen.nxt, pen.clock, pen.who

    pen.swaps.append(renew)
    return before, after


def _never() -> bool:
    """Torch cannot say whether it compiles."""
    return False
