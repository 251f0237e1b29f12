"""Knows compiled modules: `torch.compile`'s wrappers by what they wrap, and `Module.compile()`, it takes the slot."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from typing import Any, Final

from traceml.recorder.hooks import forward
from traceml.recorder.hooks.stand import SLOT, Stand
from traceml.recorder.pen import Pen
from traceml.recorder.tracebacks import conceal

HOOK: Final = "compiled modules"
_MAX_SEARCHES: Final = 4  # each looks through every object the collector knows: 47 ms with 300,000


class Wrappers:
    """Compiled wrappers by the module they wrap. The call of a root from torch.nn is seen at its wrapper alone."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._class: Any = None
        self._known: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []  # wrapped, wrapper
        self._num_searches = _MAX_SEARCHES
        self._undo: list[Any] = []

    def arrived(self) -> None:
        """torch._dynamo is loaded: wrappers are known from their making on."""
        self._class = sys.modules["torch._dynamo.eval_frame"].OptimizedModule
        self._wrap_init()

    def may_have_been(self) -> None:
        """torch._dynamo was loaded before us: wrappers may exist, and are searched for when their model is traced."""
        self._num_searches = 0

    def of(self, modules: tuple[Any, ...]) -> tuple[Any, ...]:
        """The compiled wrappers around any of these modules."""
        if self._class is None:
            return ()
        if self._num_searches < _MAX_SEARCHES:
            self._num_searches += 1
            self._search(modules)
        found = [(wrapped(), wrapper()) for wrapped, wrapper in self._known]
        return tuple(w for m, w in found if w is not None and any(m is module for module in modules))

    def watch_compile(self, module_class: Any) -> None:
        """`Module.compile()` takes the slot: we stand in front of it again at once."""
        real = module_class.__dict__.get("compile")
        if real is None:
            return
        wrappers = self

        @functools.wraps(real)
        def compile(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A001  # the method's own name
            wrappers.is_about_to_compile()
            is_traced = isinstance(self.__dict__.get(SLOT), Stand)
            try:
                answer = real(self, *args, **kwargs)
            except BaseException:
                conceal()
                raise
            wrappers.has_compiled(self, is_traced=is_traced)
            return answer

        module_class.compile = compile
        self._undo.append((module_class, "compile", compile, real))

    def is_about_to_compile(self) -> None:
        """Guarded: it runs inside the user's call."""
        try:
            self._pen.compiles()
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(HOOK, error)

    def has_compiled(self, module: Any, *, is_traced: bool) -> None:
        """`module.compile()` took the slot: we stand in front of it, where the module is traced or may be a root."""
        if is_traced:
            self.stand_again(module)
        try:
            self._pen.has_compiled_itself(module)
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(HOOK, error)

    def stand_again(self, module: Any) -> None:
        """A traced module has lost its slot to its own compilation."""
        try:
            if self._pen.guard.is_on(forward.HOOK):
                forward.attach_one(self._pen, module)
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(HOOK, error)

    def remove(self) -> None:
        """Takes the wraps off, where ours still stand."""
        while self._undo:
            owner, name, ours, real = self._undo.pop()
            if owner.__dict__.get(name) is ours:
                setattr(owner, name, real)
        self._known.clear()
        self._class = None

    def _wrap_init(self) -> None:
        real, wrappers = self._class.__init__, self

        @functools.wraps(real)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # stands for the method
            wrappers.is_about_to_compile()
            try:
                real(self, *args, **kwargs)
            except BaseException:
                conceal()
                raise
            wrappers.made(self)

        self._class.__init__ = __init__
        self._undo.append((self._class, "__init__", __init__, real))

    def made(self, wrapper: Any) -> None:
        """A wrapper is there; when what it wraps is traced, it is too."""
        try:
            module = wrapper.__dict__["_modules"]["_orig_mod"]
            self._known = [pair for pair in self._known if pair[1]() is not None]
            self._known.append((weakref.ref(module), weakref.ref(wrapper)))
            if isinstance(module.__dict__.get(SLOT), Stand):
                self.stand_again(wrapper)
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(HOOK, error)

    def _search(self, modules: tuple[Any, ...]) -> None:
        """Finds the wrappers that were made before us, from what refers to their `_modules`."""
        tables = [
            names
            for names in gc.get_referrers(*modules)
            if isinstance(names, dict) and any(names.get("_orig_mod") is module for module in modules)
        ]
        if not tables:
            return
        owners = gc.get_referrers(*tables)
        owners += gc.get_referrers(*[names for names in owners if isinstance(names, dict) and "_modules" in names])
        known = [wrapper() for _, wrapper in self._known]
        for owner in owners:
            if type(owner) is self._class and not any(owner is one for one in known):
                known.append(owner)
                self._pen.compiles()
                self.made(owner)


def install(pen: Pen) -> str:
    """Wraps `Module.compile` now, `OptimizedModule.__init__` once it is there; returns nothing: it can always be."""
    wrappers = Wrappers(pen)
    pen.wrappers_of = wrappers.of
    wrappers.watch_compile(sys.modules["torch"].nn.Module)
    if pen.skip_code is not None:
        wrappers.may_have_been()
        wrappers.arrived()
    else:
        pen.on_arrival.append(wrappers.arrived)
        pen.await_compiler()
    pen.guard.register(HOOK, wrappers.remove)
    return ""
