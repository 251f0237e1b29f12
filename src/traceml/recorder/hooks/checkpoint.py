"""Sees checkpoints: `torch.save`, `torch.distributed.checkpoint.save` and safetensors' saves, where they are loaded."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Final

from traceml.recorder.pen import Pen
from traceml.wire import edges

HOOK: Final = "checkpoint"
_OPEN: Final = edges.CHECKPOINT
_CLOSE: Final = edges.CHECKPOINT + edges.CLOSE
_PLACES: Final = (
    ("torch", "save"),
    ("torch.serialization", "save"),
    ("torch.distributed.checkpoint", "save"),
    ("torch.distributed.checkpoint.state_dict_saver", "save"),
    ("safetensors.torch", "save_file"),
    ("safetensors.torch", "save_model"),
)


class Saves:
    """The save functions that are wrapped, and those whose module may still be loaded."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._waiting = list(_PLACES)
        self._wrapped: list[tuple[Any, str, Any, Any]] = []  # module, name, original, ours
        self._made: dict[int, Any] = {}  # one wrapper an original, so that two names of it stay the same object
        self._is_open = False

    def look(self) -> None:
        """Wraps what has been loaded since the last look."""
        for place in list(self._waiting):
            module = sys.modules.get(place[0])
            original = getattr(module, place[1], None)
            if original is None:
                continue
            self._waiting.remove(place)
            ours = self._made.setdefault(id(original), None) or self._wrap(original)
            self._made[id(original)] = ours
            self._wrapped.append((module, place[1], original, ours))
            setattr(module, place[1], ours)

    def remove(self) -> None:
        """Puts the originals back, where ours still stand."""
        for module, name, original, ours in self._wrapped:
            if getattr(module, name, None) is ours:
                setattr(module, name, original)
        self._wrapped.clear()
        self._waiting.clear()

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        pen = self._pen

        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            if pen.who() != pen.owner or self._is_open:
                return original(*args, **kwargs)
            try:
                pen.stamp(_OPEN)
                self._is_open = True
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(HOOK, error)
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            except BaseException:
                pen.raised()
                raise
            finally:
                self._is_open = False
                try:
                    pen.stamp(_CLOSE)
                except BaseException as error:  # noqa: BLE001  # guard
                    pen.guard.fault(HOOK, error)

        pen.skip(save)
        return save


def install(pen: Pen) -> str:
    """Wraps the save functions; returns nothing: `torch.save` is always there."""
    saves = Saves(pen)
    saves.look()
    pen.late_looks.append(saves.look)
    pen.guard.register(HOOK, saves.remove)
    return ""
