"""Calls before and after every optimizer step: by torch's global hooks, or before torch 2.0 by wrapping the classes."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Final, Iterator, Optional

from traceml.recorder.tracebacks import conceal

Hook = Callable[[Any, Any, Any], None]
_MADE: Final = "_hook_for_profile"  # what `Optimizer.__init__` and `__setstate__` call, before torch 2.0
_wrapped: Optional[_Classes] = None


def register(before: Optional[Hook], after: Optional[Hook]) -> Optional[Callable[[], None]]:
    """Calls these around each step of each optimizer from now on; a step that raises has no `after`.

    Returns:
        What takes them off again; None where this torch gives no way in.
    """
    module = sys.modules["torch.optim.optimizer"]
    if hasattr(module, "register_optimizer_step_post_hook"):
        handles = [] if before is None else [module.register_optimizer_step_pre_hook(before)]
        handles += [] if after is None else [module.register_optimizer_step_post_hook(after)]
        return _removal(handles)
    if _MADE not in module.Optimizer.__dict__:
        return None
    return _register_by_class(module.Optimizer, before, after)


def _removal(handles: list[Any]) -> Callable[[], None]:
    def remove() -> None:
        while handles:
            handles.pop().remove()

    return remove


def _register_by_class(base: Any, before: Optional[Hook], after: Optional[Hook]) -> Callable[[], None]:
    global _wrapped  # noqa: PLW0603  # one set of wraps a process
    classes = _wrapped = _wrapped or _Classes(base)
    pair = [(hooks, hook) for hooks, hook in ((classes.before, before), (classes.after, after)) if hook is not None]
    for hooks, hook in pair:
        hooks.append(hook)

    def remove() -> None:
        global _wrapped  # noqa: PLW0603
        while pair:
            hooks, hook = pair.pop()
            hooks.remove(hook)
        if _wrapped is classes and not classes.before and not classes.after:
            _wrapped = None
            classes.remove()

    return remove


class _Classes:
    """The `step` of each optimizer's class, wrapped once. What a scheduler keeps of it calls nobody after `remove`."""

    def __init__(self, base: Any) -> None:
        self.before: list[Hook] = []
        self.after: list[Hook] = []
        self._undo: list[tuple[Any, str, Any, Any]] = []
        for kind in _below(base):
            if getattr(kind.__dict__.get("step"), "hooked", False):  # one of it was made: torch has wrapped it itself
                self._wrap(kind)
        real = base.__dict__[_MADE]

        @functools.wraps(real)
        def made(optimizer: Any) -> Any:
            answer = real(optimizer)
            if all(kind is not type(optimizer) for kind, *_ in self._undo):
                self._wrap(type(optimizer))
            return answer

        setattr(base, _MADE, made)
        self._undo.append((base, _MADE, real, made))

    def remove(self) -> None:
        """Takes the wraps off, where ours still stand."""
        while self._undo:
            owner, name, real, ours = self._undo.pop()
            if owner.__dict__.get(name) is ours:
                setattr(owner, name, real)

    def _wrap(self, kind: Any) -> None:
        real = kind.__dict__.get("step")
        if real is None:
            return
        before, after = self.before, self.after

        @functools.wraps(real)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            for hook in before:
                hook(optimizer, args, kwargs)
            try:
                answer = real(optimizer, *args, **kwargs)
            except BaseException:
                conceal()
                raise
            for hook in after:
                hook(optimizer, args, kwargs)
            return answer

        kind.step = step
        self._undo.append((kind, "step", real, step))


def _below(kind: Any) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
