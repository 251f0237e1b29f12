"""Lets one process at a time collect a run: a lock on a file in its ring folder, gone with its holder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows records nothing, and recovers nothing
    fcntl = None  # type: ignore[assignment]  # the name stays, so that one test tells

_FILE = "lock"


def take_lock(ring_dir: Path) -> Optional[int]:
    """Takes the run's lock.

    Returns:
        A descriptor that holds it until it is closed; None: another process has it, or the folder is not ours.
    """
    if fcntl is None:
        return None
    try:
        if os.lstat(ring_dir).st_uid != os.getuid():
            return None
        fd = os.open(ring_dir / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd
