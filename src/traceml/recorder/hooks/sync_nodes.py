"""Queues the engine's callback from a node of a DDP's own, where each of its backwards passes there.

A hook on the root is made anew for each backward and costs 6 to 10 us of it; one that stays on a node costs 2.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, Final

from traceml.recorder.hooks import forward
from traceml.recorder.pen import Pen
from traceml.recorder.sight import out_of_sight

_COMPILED_AUTOGRAD: Final = "torch._dynamo.compiled_autograd"


class State:
    """What the hooks share. A wait is open: those inside it are part of it. `by_node`: a node queues `ended`."""

    __slots__ = ("by_node", "ended", "is_open")

    def __init__(self) -> None:
        self.is_open = self.by_node = False
        self.ended: Callable[[], None] = _nothing


class Nodes:
    """A hook on the node of one parameter of each DDP: it is the engine's, not the user's, and goes with it."""

    def __init__(self, pen: Pen, state: State) -> None:
        self._pen, self._state = pen, state
        self._known: list[weakref.ref[Any]] = []  # by identity: a model may be unhashable
        self._handles: list[Any] = []
        self._is_unsure = False  # a backward may do without the parameter

    def look(self) -> None:
        """Takes the models that are traced since the last look."""
        parallel = sys.modules.get("torch.nn.parallel.distributed")
        kind = getattr(parallel, "DistributedDataParallel", ())
        for model in forward.attached:
            if self._is_unsure or not isinstance(model, kind) or any(known() is model for known in self._known):
                continue
            self._known.append(weakref.ref(model))
            self._is_unsure = _may_leave_out(model) or not self._take(model)
            self._state.by_node = not self._is_unsure
            self._pen.renew()

    def remove(self) -> None:
        """Takes them off."""
        self._state.by_node = False
        while self._handles:
            self._handles.pop().remove()

    def _take(self, model: Any) -> bool:
        torch, state = sys.modules["torch"], self._state
        queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001

        def at_node(*_gradients: Any) -> None:
            queue(state.ended)

        self._pen.skip(at_node)
        with out_of_sight()(), torch.enable_grad():
            trained = [parameter for parameter in model.module.parameters() if parameter.requires_grad]
            if not trained or type(trained[-1]) is not torch.nn.Parameter:
                return False
            node = trained[-1].expand_as(trained[-1]).grad_fn.next_functions[0][0]
            if not hasattr(node, "register_prehook"):  # before torch 2.0
                return False
            self._handles.append(node.register_prehook(at_node))
        return True


def _may_leave_out(model: Any) -> bool:
    """Whether DDP allows a backward in which parameters have no part, or which is traced."""
    return bool(model.find_unused_parameters or model.static_graph or compiles_backward())


def compiles_backward() -> bool:
    """Whether a backward is traced by the compiler."""
    compiled = sys.modules.get(_COMPILED_AUTOGRAD)
    return compiled is not None and bool(getattr(compiled, "compiled_autograd_enabled", False))


def _nothing() -> None:
    """No session stands behind."""
