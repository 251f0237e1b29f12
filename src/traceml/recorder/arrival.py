"""Tells when somebody has loaded torch._dynamo: the recorder itself never loads it, and must not be late for it."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Final

_NAME: Final = "torch._dynamo"


class Arrival:
    """Calls `arrived` once torch._dynamo is loaded: at once, right behind its import, or at the next look.

    Args:
        arrived: Must not raise.
    """

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._is_over = False

    def wait(self) -> None:
        """Looks, and if it is not there yet, stands in the way of its import; a second call changes nothing."""
        self.look()
        if not self._is_over and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def look(self) -> None:
        """Whether it is there by now; for importers that do not ask `sys.meta_path`."""
        frame = sys.modules.get(_NAME + ".eval_frame")
        spec = getattr(sys.modules.get(_NAME), "__spec__", None)
        if hasattr(frame, "skip_code") and not getattr(spec, "_initializing", False):
            self._be_over(is_here=True)

    def remove(self) -> None:
        """Waits no longer."""
        self._be_over(is_here=False)

    def _be_over(self, *, is_here: bool) -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        if not self._is_over:
            self._is_over = True
            if is_here:
                self._arrived()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Answers as the other finders do; only the module itself is handed to its loader with our call behind."""
        if name != _NAME:
            return None
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: Any) -> None:
            del loader.exec_module
            execute(module)
            self._be_over(is_here=True)

        with contextlib.suppress(AttributeError, TypeError):  # a loader that takes no attributes: the next look sees it
            loader.exec_module = exec_module
