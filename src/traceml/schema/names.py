"""Says which names a run folder may have."""

from __future__ import annotations

import os
from typing import Final

MAX_BYTES: Final = 100


def safe_name(name: str, *, max_bytes: int = MAX_BYTES) -> str:
    """A name that is one path component: letters, digits, `.`, `_`, `-`; never hidden, at most `max_bytes`."""
    text = "".join(ch if ch.isalnum() or ch in "._-" else "-" for ch in name).lstrip(".-").rstrip(".-")
    while len(os.fsencode(text)) > max_bytes:
        text = text[:-1]
    return text or "run"
