"""Leaves the script its descriptors; says on stderr where the run is, when asked to, and keeps a copy of the output."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Callable, Optional

from traceml.launch.output import Capture

if TYPE_CHECKING:
    from pathlib import Path

    from traceml.launch.collector import Keeper
    from traceml.launch.view import Job


class Plain:
    """Nothing between the script and its terminal; where a copy is wished, pipes.

    Args:
        keeper: The run's collector, which knows where the run is.
        show: Takes the lines that say it.
        interval_s: Seconds between two of them; None: no lines.
        log: Where the copy goes; None: none.
    """

    signals: tuple[int, ...] = ()
    master: Optional[int] = None
    farewell: Optional[tuple[int, bytes]] = None
    writable_fds: tuple[int, ...] = ()

    def __init__(
        self, keeper: Keeper, *, show: Callable[[str], None], interval_s: Optional[float], log: Optional[Path]
    ) -> None:
        self._keeper, self._show, self._interval_s = keeper, show, interval_s
        self._capture = Capture(log) if log is not None else None
        self._script: Optional[subprocess.Popen[bytes]] = None
        self._next = time.monotonic() + (interval_s or 0)

    @property
    def fds(self) -> tuple[int, ...]:
        """The collector's answers."""
        return self._keeper.fds

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong with the copy."""
        return (self._capture.note,) if self._capture is not None and self._capture.note else ()

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        """Starts the script; what we opened ourselves is not inherited, everything the shell gave us is."""
        outputs = self._capture.writers if self._capture is not None else (None, None)
        self._script = subprocess.Popen(  # noqa: S603  # what the user asked for
            list(job.command), env=dict(job.environ), stdout=outputs[0], stderr=outputs[1], close_fds=False
        )
        if self._capture is not None:
            self._capture.started()
        return self._script

    def left_s(self) -> Optional[float]:
        """Until the next line."""
        return None if self._interval_s is None else max(0.0, self._next - time.monotonic())

    def turn(self, readable: set[int]) -> None:
        """Asks the collector for a line every interval, and hands on what it says."""
        if readable.intersection(self.fds):
            text = self._keeper.answer().text
            if text:
                self._show(text)
        if self._interval_s is not None and time.monotonic() >= self._next:
            self._keeper.ask()
            self._next = time.monotonic() + self._interval_s

    def signalled(self, signum: int) -> None:
        """None is ours."""

    def pass_on(self, signum: int, *, whole_group: bool) -> None:
        """The script is in our group: what reached that is not sent twice."""
        if not whole_group and self._script is not None and self._script.poll() is None:
            self._script.send_signal(signum)

    def end(self) -> None:
        """Waits until the copy is complete."""
        if self._capture is not None:
            self._capture.drain()
