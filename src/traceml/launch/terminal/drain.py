"""Empties the script's terminal into the log once the launcher is gone: the script neither ends by it nor waits."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from traceml.launch.output import Log

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK: Final = 1 << 16
_PATIENCE_S: Final = 1.0


class Drain:
    """A thread of the collector's that reads a pty's master until nobody has the other end any more.

    Args:
        master: The pty's end, which the collector has had since its start.
        log: The log, which the launcher began.
    """

    def __init__(self, master: int, log: Path) -> None:
        self._master, self._path = master, log
        self._thread = threading.Thread(target=self._run, name="drain", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def finish(self) -> None:
        """Waits at most 1 s for what the ended script left."""
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        log = None
        with suppress(OSError):  # a full or read-only disk: the script must be read all the same
            log = Log(self._path)
        while True:
            select.select([self._master], [], [])
            try:
                data = os.read(self._master, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # the last one has closed its end
                break
            if not data:
                break
            if log is not None:
                log.write(data.replace(b"\r\n", b"\n"))
        if log is not None:
            log.close()
