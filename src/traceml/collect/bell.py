"""Hears a rank that wants its report at once: a FIFO in the ring folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Optional

from traceml.wire.ringfolder import BELL


class Bell:
    """The listening end. Where no FIFO can be made there is none, and requests wait for the next turn."""

    def __init__(self, ring_dir: Path) -> None:
        self.fd: Optional[int] = None
        path = ring_dir / BELL
        try:
            with suppress(FileExistsError):  # an earlier collector's
                os.mkfifo(path, 0o600)
            # For writing too: else the descriptor reads an end of file whenever the last rank has closed its end.
            self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            return

    def hear(self) -> None:
        """Takes in what was rung."""
        if self.fd is not None:
            with suppress(BlockingIOError):
                os.read(self.fd, 4096)

    def close(self) -> None:
        """Stops listening."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
