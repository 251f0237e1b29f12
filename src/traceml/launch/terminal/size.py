"""Tells the script's terminal its size, when who is there can hear it and bear it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Final, Optional

if TYPE_CHECKING:
    from traceml.launch.terminal.child import Pty
    from traceml.launch.terminal.region import Region

_NUDGES_S: Final = (0.1, 0.5, 1.5)
_SETTLE_S: Final = 1.0  # vim leaves its screen for a `:!command`; told another size then, it would wipe the output
_LOOK_S: Final = 0.1


class Size:
    """The rows above the panel; on a screen of the script's own, or without a panel, all."""

    def __init__(self, pty: Pty, region: Region) -> None:
        self._pty, self._region = pty, region
        self._nudges: list[float] = []  # when a full-screen program is told its size again
        self._shrink_at: Optional[float] = None  # when who left a screen of its own is told the rows above the panel

    def tell(self) -> None:
        """At once."""
        rows = self._region.script_rows if self._region.is_open else self._region.rows
        self._pty.resize(rows, self._region.columns)
        self._shrink_at = None

    def enter(self) -> None:
        """The script switched to a screen of its own."""
        self.tell()
        self.nudge()

    def leave(self) -> None:
        """It is back on the main one; perhaps for a moment."""
        self._nudges = []
        self._shrink_at = time.monotonic() + _SETTLE_S

    def nudge(self) -> None:
        """A full-screen program that has just drawn may miss that its size is new: less does, before it reads keys."""
        now = time.monotonic()
        self._nudges = [now + after_s for after_s in _NUDGES_S]

    @property
    def left_s(self) -> Optional[float]:
        """Until `turn` may have something to do; None: it has nothing."""
        if self._shrink_at is not None:
            return _LOOK_S
        return min(_LOOK_S, max(0.0, self._nudges[0] - time.monotonic())) if self._nudges else None

    def turn(self) -> None:
        """Tells what is due. Who waits for a single key, as vim does below a command's output, is not told yet."""
        now = time.monotonic()
        if self._nudges and now >= self._nudges[0]:
            del self._nudges[0]
            self._pty.send(signal.SIGWINCH)
        if self._shrink_at is None:
            return
        if not self._pty.is_cooked:
            self._shrink_at = now + _SETTLE_S
        elif now >= self._shrink_at:
            self.tell()
