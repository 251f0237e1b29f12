"""Stands in a traced model's place, and calls what would have been called without us; copies and files hold nothing."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Final

SLOT: Final = "_compiled_call_impl"  # nn.Module.__call__ looks there first; torch 2.1 and newer
METHOD: Final = "forward"


class Inner:
    """A call that is ours, not the user's: it is not put back when a hook comes off. Holds the model weakly."""

    __slots__ = ("model",)

    def __init__(self, model: Any) -> None:
        self.model = weakref.ref(model)


class ByMethod(Inner):
    """The class's own `forward`, for an instance in whose `forward` we stand."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it."""
        model: Any = self.model()
        return type(model).forward.__get__(model)(*args, **kwargs)


class ByFrame(Inner):
    """The module that really called, for classes that copy themselves and may take our object along.

    `nn.Module.__call__` hands no `self` to what stands in the slot, so a copy made by `self.__dict__.copy()` would
    compute with the original's weights. The frame of the call knows; the copy is rid of our object by its first call.
    """

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it."""
        model: Any = self.model()
        caller = sys._getframe(2).f_locals.get("self")  # noqa: SLF001  # Module.__call__, behind Forward.__call__
        if caller is not None and caller is not model and isinstance(getattr(caller, "__dict__", {}).get(SLOT), Stand):
            del caller.__dict__[SLOT]
            model = caller
        return type(model)._call_impl.__get__(model)(*args, **kwargs)  # noqa: SLF001  # as Module.__call__ does


class Stand:
    """What stands in a model's slot or `forward`. Copies and pickles of it are None: nothing of ours travels.

    `call` is what stood there before, the user's own, or None for the class's own call, or an Inner.
    """

    __slots__ = ("__weakref__", "call", "model")

    def __init__(self, model: Any, call: Any) -> None:
        self.model = weakref.ref(model)
        self.call = call

    def __copy__(self) -> None:
        return None

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def __reduce__(self) -> Any:
        return type(None), ()

    @property
    def before(self) -> Any:
        """What stood there without us; None: nothing."""
        return None if isinstance(self.call, Inner) else self.call
