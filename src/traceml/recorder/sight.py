"""Gives what keeps our look at a tensor out of the sight of the script's own modes and subclasses."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


def out_of_sight() -> Any:
    """To a mode or a subclass of the user's, reading an attribute is a function called; inside of this it is not."""
    torch = sys.modules["torch"]
    return getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)  # noqa: SLF001  # no public name has it
