"""Sees waiting for other ranks: the end of a backward that reduces, `Work.wait`, and the waits that pass by that one.

Nothing is taken before torch.distributed has more than one rank: a training of one process pays nothing, and has no
`sync`. A backward is split by a callback that is queued in the engine early on: it runs behind all local work, and
before that of DDP, which was queued when the last bucket was ready. The wait ends where the engine returns. The
backward's root queues the callback; with a DDP in which every parameter has a part in every backward, a hook on the
engine's node of one of them does at half of the cost.
"""

from __future__ import annotations

import functools
import sys
from threading import get_ident
from typing import Any, Callable, Final, Optional

from traceml.recorder.hooks.sync_calls import Calls, place_of
from traceml.recorder.hooks.sync_groups import Groups
from traceml.recorder.hooks.sync_nodes import Nodes, State, compiles_backward
from traceml.recorder.pen import NO_WAITS, Pen
from traceml.schema import phases
from traceml.wire import edges

HOOK: Final = "sync waits"
_OPEN: Final = edges.SYNC
_CLOSE: Final = edges.SYNC + edges.CLOSE
_NAMED_S: Final = 1e-3  # from here on it is looked which line of the script waits
_FUNCTIONAL: Final = "torch.distributed._functional_collectives"


class Waits:
    """What is taken of torch while a session records several ranks."""

    def __init__(self, pen: Pen) -> None:
        self._pen, self._state = pen, State()
        self._calls, self._groups = Calls(pen), Groups(pen)
        self._taken: list[tuple[Any, str, Any, Any]] = []  # owner, name, what stood there, ours
        self._nodes = Nodes(pen, self._state)
        self._is_on = self._is_over = False

    def look(self) -> None:
        """Begins once there are several ranks; then takes what has been loaded since the last look."""
        if self._is_over or not (self._is_on or has_several_ranks()):
            return
        if not self._is_on:
            self._is_on = True
            self._begin()
        if not self._pen.has_compiled:  # the compiler would guard on what is exchanged under it
            self._take(sys.modules.get(_FUNCTIONAL), "wait_tensor", asks_compiler=True)
        self._groups.look()
        self._nodes.look()

    def remove(self) -> None:
        """Gives everything back, where ours still stands."""
        self._is_over, self._state.is_open = True, False
        self._groups.remove()
        self._nodes.remove()
        for owner, name, stood, ours in self._taken:
            if owner.__dict__.get(name) is not ours:
                continue
            if stood is not None:
                setattr(owner, name, stood)
            else:
                delattr(owner, name)
        self._taken.clear()
        if self._pen.split_backward is not None:
            self._pen.split_backward, self._pen.waits = None, NO_WAITS
            self._pen.renew()

    def _begin(self) -> None:
        torch = sys.modules["torch"]
        distributed = torch._C._distributed_c10d  # noqa: SLF001  # where every torch has both
        self._pen.split_backward = self._make_split(torch.autograd.Variable._execution_engine)  # noqa: SLF001
        self._pen.waits = self._state
        self._pen.renew()
        self._take(distributed.Work, "wait")
        self._take(distributed.ProcessGroup, "monitored_barrier")
        data_parallel = sys.modules.get("torch.nn.parallel.distributed")
        self._take(getattr(data_parallel, "DistributedDataParallel", None), "_sync_buffers")
        self._pen.tell(watched=(phases.SYNC,))

    def _take(self, owner: Any, name: str, *, asks_compiler: bool = False) -> None:
        """Stands in the place of a function that waits; where this torch has it, and once."""
        original = getattr(owner, name, None)
        if original is None or any(taken[0] is owner and taken[1] == name for taken in self._taken):
            return
        is_compiling = getattr(getattr(sys.modules["torch"], "compiler", None), "is_compiling", None)
        if asks_compiler and is_compiling is None and "torch._dynamo" in sys.modules:
            return  # this torch cannot say that it compiles: what we put there might break a graph
        ours = self._make_wait(original)
        if asks_compiler and is_compiling is not None:
            ours = _eager(original, ours, is_compiling)
        stood = owner.__dict__.get(name)  # a C++ class holds descriptors: what `getattr` gives binds no `self` any more
        self._taken.append((owner, name, stood, ours))
        setattr(owner, name, ours)

    def _make_wait(self, real: Callable[..., Any]) -> Callable[..., Any]:
        pen, state, calls = self._pen, self._state, self._calls
        nxt, mask, codes, stamps, clock = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock

        @functools.wraps(real)
        def wait(*args: Any, **kwargs: Any) -> Any:
            if state.is_open or get_ident() != pen.owner:
                return real(*args, **kwargs)
            try:
                k = nxt() & mask
                codes[k] = _OPEN
                began = stamps[k] = clock()
                state.is_open = True
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)
                return real(*args, **kwargs)
            try:
                return real(*args, **kwargs)
            except BaseException:
                pen.raised()
                raise
            finally:
                state.is_open = False
                try:
                    k = nxt() & mask
                    codes[k] = _CLOSE
                    now = stamps[k] = clock()
                    if now - began >= _NAMED_S:
                        calls.waited(now, now - began, sys._getframe(1))  # noqa: SLF001
                except BaseException as error:  # noqa: BLE001  # guard
                    pen.guard.fault(HOOK, error)

        def renew() -> None:
            nonlocal nxt, clock
            nxt, clock = pen.nxt, pen.clock

        pen.swaps.append(renew)
        pen.skip(wait)
        return wait

    def _make_split(  # noqa: C901  # one hot path
        self, engine: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """What makes of the engine's entry one that tells local work from waiting; whoever called it ends the wait."""
        pen, state = self._pen, self._state

        def split(run: Callable[..., Any]) -> Callable[..., Any]:
            nxt, mask, codes, stamps, clock = pen.nxt, pen.mask, pen.codes, pen.stamps, pen.clock
            queue = engine.queue_callback

            def local_work_ended() -> None:
                """The first final callback: with a device in another thread, while the owner waits for the engine."""
                if state.is_open or pen.owner is None:
                    return
                try:
                    k = nxt() & mask
                    codes[k] = _OPEN
                    stamps[k] = clock()
                    state.is_open = True  # until the engine's entry returns
                except BaseException as error:  # noqa: BLE001  # guard
                    pen.guard.fault(HOOK, error)

            def at_root(*_gradients: Any) -> None:
                try:
                    queue(local_work_ended)
                except BaseException as error:  # noqa: BLE001  # guard
                    pen.guard.fault(HOOK, error)

            def backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
                handle = None
                try:
                    handle = _hook(roots, at_root)
                except BaseException as error:  # noqa: BLE001  # guard
                    pen.guard.fault(HOOK, error)
                try:
                    return run(roots, *args, **kwargs)
                finally:
                    if handle is not None:
                        handle.remove()

            state.ended = local_work_ended
            for ours in (backward, at_root, local_work_ended):
                pen.skip(ours)
            return run if state.by_node else backward

        for ours in (_hook, compiles_backward, Calls.waited, place_of):
            pen.skip(ours)
        return split


def install(pen: Pen) -> str:
    """Begins to look for several ranks; returns why their waits cannot be seen, or nothing."""
    waits = Waits(pen)
    pen.look_for_ranks = waits.look
    pen.late_looks.append(waits.look)
    pen.guard.register(HOOK, waits.remove)
    waits.look()
    return ""


def has_several_ranks() -> bool:
    """Whether torch.distributed is initialised, with more than one rank."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    return bool(distributed.get_world_size() > 1)


def _hook(roots: Any, at_root: Callable[[Any], None]) -> Optional[Any]:
    """A hook on the first root that has gradients; none where the backward itself is compiled: it would be traced."""
    if compiles_backward():
        return None
    for root in roots:
        node = getattr(root, "grad_fn", None)
        if node is not None:
            return node.register_prehook(at_root) if hasattr(node, "register_prehook") else root.register_hook(at_root)
        if getattr(root, "requires_grad", False):
            return root.register_hook(at_root)
    return None


def _eager(original: Any, ours: Callable[..., Any], is_compiling: Callable[[], bool]) -> Callable[..., Any]:
    """What may be traced by the compiler: first of all it asks, and then the graph is what it is without us."""

    @functools.wraps(original)
    def wait(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        return ours(*args, **kwargs)

    return wait
