"""Notices communication from which nobody can be named: in pairs, in a part of the ranks, inside a compiled FSDP2.

Stages of a pipeline do different work, so the median of the ranks is no peer; the ranks of a tensor-parallel group wait
for one another many times a step. It is said once, and what was taken to notice it is given back.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Final

from traceml.recorder.hooks import forward
from traceml.recorder.hooks.stand import SLOT, Inner, Stand
from traceml.recorder.pen import Pen
from traceml.schema import phases

PAIRS: Final = "ranks send to one another in pairs (pipeline parallel?), so no rank is named"
PARTS: Final = "part of the ranks communicate among themselves (tensor parallel?), so no rank is named"
COMPILED: Final = "a compiled FSDP2 waits inside its graphs, so no rank is named"
_PAIRS: Final = ("send", "recv", "recv_anysource")
_COLLECTIVES: Final = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "scatter", "barrier"),
    *("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced", "all_gather_single"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "reduce_scatter_single"),
    *("alltoall", "alltoall_base"),
)


class Groups:
    """What is watched for it: nothing of the collectives as long as every group holds all ranks."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._taken: list[
            tuple[str, Any, Any]
        ] = []  # name, what stood there (a descriptor: `getattr` unbinds it), ours
        self._is_over = False
        self._num_groups = 0
        self._num_models = -1

    def look(self) -> None:
        """Takes what a new group makes worth watching, and looks at new models."""
        if self._is_over:
            return
        if not self._num_groups:
            self._watch(_PAIRS, PAIRS, whole_too=True)
        groups = sys.modules["torch.distributed.distributed_c10d"]
        known = getattr(groups, "_pg_map", None) or getattr(getattr(groups, "_world", None), "pg_map", {})
        if len(known) != self._num_groups:
            self._num_groups = len(known)
            world_size = groups.get_world_size()
            if any(1 < group.size() < world_size for group in known if hasattr(group, "size")):
                self._watch(_COLLECTIVES, PARTS, whole_too=False)
        models = list(forward.attached)
        if len(models) != self._num_models or self._pen.has_compiled:
            self._num_models = len(models)
            if any(map(_is_sharded, models)) and any(map(_is_compiled, models)):
                self._tell(COMPILED)

    def remove(self) -> None:
        """Gives everything back."""
        self._is_over = True
        owner = sys.modules["torch.distributed.distributed_c10d"].ProcessGroup if self._taken else None
        for name, stood, ours in self._taken:
            if owner is not None and owner.__dict__.get(name) is ours:
                setattr(owner, name, stood) if stood is not None else delattr(owner, name)
        self._taken.clear()

    def _tell(self, reason: str) -> None:
        self.remove()
        self._pen.tell(unseen={phases.SYNC: reason})

    def _watch(self, names: tuple[str, ...], reason: str, *, whole_too: bool) -> None:
        distributed = sys.modules["torch.distributed.distributed_c10d"]
        owner, world_size = distributed.ProcessGroup, distributed.get_world_size()
        for name in names:
            original = getattr(owner, name, None)
            if original is not None and all(taken[0] != name for taken in self._taken):
                ours = self._make(original, reason, world_size + whole_too)
                self._taken.append((name, owner.__dict__.get(name), ours))
                setattr(owner, name, ours)

    def _make(self, original: Any, reason: str, below: int) -> Any:
        pen = self._pen

        def communicate(group: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                is_training = pen.in_step or (pen.infers and pen.num_steps)
                if is_training and not self._is_over and get_ident() == pen.owner and 1 < group.size() < below:
                    self._tell(reason)
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault("sync waits", error)  # the hook that this is a part of
            return original(group, *args, **kwargs)

        communicate.__wrapped__ = original  # type: ignore[attr-defined]
        communicate.__name__ = getattr(original, "__name__", communicate.__name__)
        pen.skip(communicate)
        return communicate


def _is_sharded(model: Any) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(model).__mro__)


def _is_compiled(model: Any) -> bool:
    found = model.__dict__.get(SLOT)
    call = found.call if isinstance(found, Stand) else found
    is_by_slot = call is not None and not isinstance(call, Inner)
    return is_by_slot or "_orig_mod" in model.__dict__.get("_modules", {})
