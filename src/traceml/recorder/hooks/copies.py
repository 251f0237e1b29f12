"""Keeps what is ours out of copies of a model: replicas, states of instances, classes that copy themselves."""

from __future__ import annotations

import functools
from typing import Any, Callable, Final, Optional

from traceml.recorder.hooks.stand import METHOD, SLOT, Stand
from traceml.recorder.tracebacks import conceal

_COPYING: Final = ("__getstate__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")
_undo: Optional[Callable[[], None]] = None  # of the wrapped __getstate__


def has_slot(torch: Any) -> bool:
    """Whether this torch's modules look into the slot when they are called."""
    return hasattr(torch.nn.Module, SLOT)


def clear(names: Any) -> None:
    """Takes what is ours out of an instance's names (its `__dict__`, or a copy of it), as if nothing had been."""
    for name in (SLOT, METHOD):
        found = names.get(name)
        if isinstance(found, Stand):
            before = found.before
            if before is None:
                del names[name]
            else:
                names[name] = before


def copies_itself(kind: type[Any]) -> bool:
    """Whether a class has a copying method of its own, which may copy `__dict__` as it is; torch's own are known."""
    for name in _COPYING:
        for owner in kind.__mro__:
            if name in owner.__dict__:
                if owner is not object and not owner.__module__.startswith("torch."):
                    return True
                break
    return False


def install(torch: Any) -> Callable[[], None]:
    """Wraps `_replicate_for_data_parallel`, which copies `__dict__`; returns what takes all of this file off again."""
    module = torch.nn.Module
    real = module._replicate_for_data_parallel  # noqa: SLF001  # DataParallel's own way in

    @functools.wraps(real)
    def _replicate_for_data_parallel(self: Any) -> Any:
        try:
            replica = real(self)
        except BaseException:
            conceal()
            raise
        clear(replica.__dict__)
        return replica

    def remove() -> None:
        if module.__dict__.get(real.__name__) is _replicate_for_data_parallel:
            module._replicate_for_data_parallel = real  # noqa: SLF001
        if _undo is not None:
            _undo()

    module._replicate_for_data_parallel = _replicate_for_data_parallel  # noqa: SLF001
    return remove


def watch_states(torch: Any) -> None:
    """Keeps our `forward` out of the states of instances; needed only once there is one."""
    global _undo  # noqa: PLW0603  # one wrap a process
    if _undo is not None:
        return
    module = torch.nn.Module
    real = module.__dict__.get("__getstate__")  # none before torch 2.1

    def __getstate__(self: Any) -> Any:  # noqa: N807  # stands for the method
        try:
            state = self.__dict__.copy() if real is None else real(self)
        except BaseException:
            conceal()
            raise
        if isinstance(state, dict):
            clear(state)
        return state

    if real is not None:
        functools.update_wrapper(__getstate__, real)

    def undo() -> None:
        global _undo  # noqa: PLW0603
        _undo = None
        if module.__dict__.get("__getstate__") is __getstate__:
            if real is None:
                del module.__getstate__
            else:
                module.__getstate__ = real

    module.__getstate__ = __getstate__
    _undo = undo
