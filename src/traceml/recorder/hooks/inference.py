"""Sees what steps are inferred from, while there is no `trace_step`: the root models, and the end of every update.

For the first updates of each optimizer the slot that `forward` fills in an instance is filled in the class, too: what
is called outermost with gradients gets its own from there, and what no optimizer trains loses it again. Then the class
has its None back. (A replaced `nn.Module.__call__` finds the same, but the compiler guards it: a recompilation more.)
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from threading import get_ident
from typing import Any, Callable, Final, Iterator

from traceml.recorder.hooks import forward, optimizer
from traceml.recorder.pen import Pen, no_matter, no_update
from traceml.recorder.sight import out_of_sight
from traceml.recorder.tracebacks import conceal
from traceml.wire import edges
from traceml.wire.ring import PUBLISHED

HOOK: Final = "inference"
_CALL: Final = "__call__"
_UPDATED: Final = edges.UPDATED
_NUM_UPDATES: Final = 3  # of one optimizer, until its models are known
_NUM_CALLS: Final = 256  # outermost calls, until we stop looking without any update
_MAX_SEARCHES: Final = 16
_NUM_MISSES: Final = 8
_MAX_OPTIMIZERS: Final = 4095


class Roots:
    """Searches the models that are trained, by their outermost calls."""

    def __init__(self, pen: Pen, module_class: Any, grad_mode: Callable[[], bool]) -> None:
        self._pen, self._class, self._grad_mode = pen, module_class, grad_mode
        self._ours: Any = None  # in the class, while searching
        self._place = forward.SLOT if pen.slot == forward.SLOT else _CALL
        self._real = module_class.__dict__.get(self._place)
        self._is_inside = False  # the outermost call, where the class is searched by its call
        if self._place == _CALL:
            pen.on_compiled.append(self._give_back)  # the compiler would guard it
        self._found: weakref.WeakSet[Any] = weakref.WeakSet()
        self._out_of_sight = out_of_sight()
        self._is_told = True  # what the optimizers train; one that is not torch's does not tell
        self._optimizers: list[weakref.ref[Any]] = []  # seen since the search began
        self._num_searches = self._num_misses = self._num_calls = 0
        self.num_updates_left = 0  # of the search; 0: there is none
        self._leader = 0  # the optimizer whose updates count

    def search(self, leader: int) -> None:
        """Looks at outermost calls for the next updates of the optimizer `leader` (0: the first that updates)."""
        self._leader, self.num_updates_left, self._num_calls = leader, _NUM_UPDATES, 0
        self._pen.due = 0.0  # the updates are looked at
        if self._ours is not None or self._num_searches >= _MAX_SEARCHES or not self._pen.guard.is_on(forward.HOOK):
            return
        if self._place == _CALL and self._pen.has_compiled:
            return
        self._num_searches += 1
        self._ours = self._make_finder() if self._place == forward.SLOT else self._make_call()
        setattr(self._class, self._place, self._ours)

    def updated(self, optimizer: Any, serial: int) -> None:
        """An update while searching; the third one of the leader ends it."""
        self._leader = self._leader or serial
        if not hasattr(optimizer, "param_groups"):
            self._is_told = False
        elif all(known() is not optimizer for known in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))
        if serial == self._leader:
            self.num_updates_left -= 1
            if not self.num_updates_left:
                self._give_back()
                self._keep_trained()

    def missed(self, number: int) -> None:
        """An update came without a forward that we saw: the models may have changed, or were not found yet."""
        if not self.num_updates_left and self._num_misses < _NUM_MISSES:
            self._num_misses += 1
            self.search(number)

    def find_compiled(self) -> None:
        """Models whose `compile()` took their slot before we were there: no search comes past them."""
        for found in gc.get_objects():  # 40 ms with 300,000 objects, once, and only if the compiler is loaded already
            if issubclass(type(found), self._class) and found.__dict__.get(forward.SLOT) is not None:
                self.compiled(found)

    def compiled(self, model: Any) -> None:
        """`model.compile()` has just taken the slot: ours goes before it."""
        if self._pen.guard.is_on(forward.HOOK):
            forward.attach(self._pen, model)
            self._found.add(model)

    def remove(self) -> None:
        """Ends the search, and takes the slots off the roots."""
        self.num_updates_left = 0
        self._give_back()
        for model in list(self._found):
            forward.detach(self._pen, model)
        self._found = weakref.WeakSet()

    def _give_back(self) -> None:
        if self._ours is not None and self._class.__dict__.get(self._place) is self._ours:
            setattr(self._class, self._place, self._real)
        self._ours = None

    def _make_finder(self) -> Any:
        pen, grad_mode, called = self._pen, self._grad_mode, self._called

        class Finder:
            def __get__(self, model: Any, _class: Any) -> Any:
                """What the slot of a module without one holds: nothing, or the Forward that it has from now on."""
                if model is None or pen.busy or get_ident() != pen.owner or not grad_mode():
                    return None
                called(model)
                return model.__dict__.get(forward.SLOT)

        pen.skip(Finder.__get__)
        pen.skip(Roots._called)
        return Finder()

    def _make_call(self) -> Any:
        """What stands for `nn.Module.__call__` on a torch without the slot, before 2.1."""
        pen, grad_mode, real = self._pen, self._grad_mode, self._real

        @functools.wraps(real)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside or pen.busy or get_ident() != pen.owner or not grad_mode():
                return real(model, *args, **kwargs)
            self._called(model)
            self._is_inside = True  # be it a class in which we cannot stand: what it calls is no root
            try:
                return real(model, *args, **kwargs)
            except BaseException:
                conceal()
                raise
            finally:
                self._is_inside = False

        return call

    def _called(self, model: Any) -> None:
        """A module is called outermost, with gradients."""
        try:
            self._num_calls += 1
            with self._out_of_sight():  # to a mode of the user's, reading an attribute is a function called
                is_trainable = any(parameter.requires_grad for parameter in model.parameters())
            if is_trainable:
                forward.attach(self._pen, model)
                self._found.add(model)
            elif self._num_calls >= _NUM_CALLS:
                self.num_updates_left = 0
                self._give_back()
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(HOOK, error)

    def _keep_trained(self) -> None:
        """A model of which no parameter is in an optimizer (a metric network) is no root."""
        optimizers = [known() for known in self._optimizers]
        self._optimizers = []
        if not self._is_told:
            return
        trained = {
            id(parameter)
            for optimizer in optimizers
            if optimizer is not None
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        models = list(self._found)
        idle = [model for model in models if all(id(p) not in trained for p in model.parameters())]
        if len(idle) == len(models):
            return  # the optimizers hold copies of the parameters: who is trained cannot be told
        for model in idle:
            forward.detach(self._pen, model)
            self._found.discard(model)


def install(pen: Pen) -> str:
    """Begins to infer; returns why that cannot be, or nothing."""
    torch = sys.modules["torch"]
    roots = Roots(pen, torch.nn.Module, torch.is_grad_enabled)
    updated, skipped = _make_updated(pen, roots)
    remove_hook = optimizer.on_each_step(pen, None, updated)
    if remove_hook is None:
        return f"torch {torch.__version__} steps its optimizers another way: the ends of steps are not seen"
    wrapped = list(_wrap_scalers(pen, skipped))
    pen.has_compiled_itself = roots.compiled
    pen.has_updated = updated

    def remove() -> None:
        pen.infers, pen.has_compiled_itself, pen.has_updated = False, no_matter, no_update
        remove_hook()
        for owner, name, real, ours in wrapped:
            if owner.__dict__.get(name) is ours:
                setattr(owner, name, real)
        roots.remove()

    pen.guard.register(HOOK, remove)
    pen.infers = True
    roots.search(0)
    if pen.skip_code is not None and pen.slot == forward.SLOT:
        roots.find_compiled()
    return ""


def _make_updated(  # noqa: C901, PLR0915  # closures over one state, as hot as a step end
    pen: Pen, roots: Roots
) -> tuple[Callable[[Any, Any, Any], None], Callable[[Any, int], int]]:
    """The hook behind each optimizer step, and what a GradScaler asks: how many updates, and that there was none."""
    nxt, mask, codes, stamps, header, who = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.ring.header, pen.who
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    others: dict[int, int] = {}  # given to wrap_optimizer, by id
    newest, number, base, count = 0, 0, 0.0, 0

    def switch(optimizer: Any) -> None:
        nonlocal newest, number, base
        newest = id(optimizer)
        try:
            found = numbers.get(optimizer)
        except TypeError:  # not torch's: neither a reference nor a hash need be there
            found = others.get(newest)
        if found is None:
            found = min(len(numbers) + len(others) + 1, _MAX_OPTIMIZERS)
            try:
                numbers[optimizer] = found
            except TypeError:
                others[newest] = found
            if found > 1:
                roots.search(found)  # its model may be another one
        number, base = found, float(found << edges.UPDATE_BITS)

    def tend(optimizer: Any) -> None:
        if not pen.num_forwards and not pen.busy:
            roots.missed(number)
        if roots.num_updates_left:
            roots.updated(optimizer, number)
        now = pen.clock()
        if now >= pen.due:
            pen.tend(now)
        if roots.num_updates_left or pen.stop_at >= 0:
            pen.due = 0.0  # behind each update

    def updated(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        nonlocal count
        if who() != pen.owner and (count or not pen.adopt()):
            return
        try:
            if id(optimizer) != newest:
                switch(optimizer)
            if number == 1 and pen.num_steps == pen.stop_at:
                pen.stop()  # the steps that were asked for are over only now: the next one's first update
                return
            count += 1
            j = nxt()
            k = j & mask
            codes[k] = _UPDATED
            stamps[k] = base + count
            header[PUBLISHED] = j + 1
            if number == 1:
                pen.num_steps += 1
            if not pen.num_forwards or stamps[(j - 1) & mask] >= pen.due:
                tend(optimizer)
            pen.num_forwards = 0
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)

    def renew() -> None:
        nonlocal nxt, who
        nxt, who = pen.nxt, pen.who

    pen.swaps.append(renew)

    def skipped(optimizer: Any, num_before: int) -> int:
        if num_before == count:
            if id(optimizer) != newest:
                switch(optimizer)
            pen.value(edges.SKIPPED, base + count)
        return count

    return updated, skipped


def _wrap_scalers(pen: Pen, skipped: Callable[[Any, int], int]) -> Iterator[tuple[Any, str, Any, Any]]:
    """Wraps `GradScaler.step` where it is defined, to see "asked, not done"; yields class, name, original, ours."""
    for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
        owner = getattr(sys.modules.get(name), "GradScaler", None)
        if owner is None or "step" not in owner.__dict__:
            continue
        ours = _make_step(pen, skipped, owner.step)
        yield owner, "step", owner.step, ours
        owner.step = ours


def _make_step(pen: Pen, skipped: Callable[[Any, int], int], real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != pen.owner:
            return real(self, optimizer, *args, **kwargs)
        num_before = skipped(optimizer, -1)
        try:
            done = real(self, optimizer, *args, **kwargs)
        except BaseException:
            conceal()
            raise
        try:
            skipped(optimizer, num_before)
        except BaseException as error:  # noqa: BLE001  # guard
            pen.guard.fault(HOOK, error)
        return done

    return step
