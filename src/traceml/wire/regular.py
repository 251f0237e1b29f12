"""Opens regular files alone: a pipe, a device or a folder in a file's place holds nobody up."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path


def open_regular(path: Path) -> BinaryIO:
    """A file to read, from its beginning. Never waits, as `open` does for a pipe's writer.

    Raises:
        OSError: It cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    # O_NONBLOCK: opening a pipe must not wait for somebody who writes; regular files do not know it.
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def is_regular(path: Path) -> bool:
    """Whether a regular file is there; one behind a folder that we may not enter is not there for us."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False
