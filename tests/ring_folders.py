"""Makes ring folders as `traceml run` makes them."""

from __future__ import annotations

import os
from pathlib import Path


def ring_folder(parent: Path) -> Path:
    """A private folder below the user's root in `parent`; the same one at each call."""
    folder = parent / f"traceml-{os.getuid()}" / "0123456789abcdef"
    for path in (folder.parent, folder):
        path.mkdir(mode=0o700, exist_ok=True)
    return folder
