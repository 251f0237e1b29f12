"""Calls before and after every optimizer step where torch has no hooks for it: before 2.0, by wrapping the classes."""

from __future__ import annotations

import functools
from typing import Any, Callable, Final, Iterator, Optional

from traceml.recorder.tracebacks import conceal

Hook = Callable[[Any, Any, Any], None]
_MADE: Final = "_hook_for_profile"  # what `Optimizer.__init__` and `__setstate__` call, before torch 2.0
_wrapped: Optional[_Classes] = None


def register(base: Any, before: Optional[Hook], after: Hook) -> Optional[Callable[[], None]]:
    """Calls these around each step of each optimizer; returns what takes them off again, None where it cannot be.

    Args:
        base: `torch.optim.Optimizer`.
        before: Called first, if given.
        after: Called behind a step that did not raise.
    """
    global _wrapped  # noqa: PLW0603  # one set of wraps a process
    if _MADE not in base.__dict__:
        return None
    classes = _wrapped = _wrapped or _Classes(base)
    pair = [(classes.after, after)] if before is None else [(classes.before, before), (classes.after, after)]
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
