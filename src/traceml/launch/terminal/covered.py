"""Is the full view: the whole screen is another process's at first; when that closes, the inline view is there."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Mapping, Optional, Sequence

from traceml.launch.terminal.inline import Inline
from traceml.launch.terminal.keys import QUESTION
from traceml.launch.terminal.panel import Panel

if TYPE_CHECKING:
    from pathlib import Path

    from traceml.launch.terminal.panel import Asked
    from traceml.launch.view import Job

_LOOK_S: Final = 0.2
_PATIENCE_S: Final = 3.0
_MAX_HELD: Final = 1 << 20  # of output for the terminal's own scroll-back; all of it is in the log


class Covered(Inline):
    """An inline view under a cover that has the terminal, its keys and its signals until it closes.

    Nothing that the script prints is lost meanwhile: it goes to the log, and its last MB to the terminal afterwards.

    Args:
        keeper: The run's collector.
        log: Where what is printed is kept.
        title: The panel before the first answer.
        environ: Says what the terminal can show.
        is_ascii: The terminal carries nothing else.
        cover: The command that shows the run on the whole screen.

    Raises:
        OSError: No terminal or no pty can be had: nothing was changed.
    """

    def __init__(
        self, keeper: Asked, *, log: Path, title: str, environ: Mapping[str, str], is_ascii: bool, cover: Sequence[str]
    ) -> None:
        super().__init__(keeper, log=log, title=title, environ=environ, is_ascii=is_ascii)
        self._keeper, self._title, self._command = keeper, title, list(cover)
        self._cover: Optional[subprocess.Popen[bytes]] = None
        self._held = b""

    @property
    def fds(self) -> tuple[int, ...]:
        """Output alone, as long as the cover has the keys."""
        return super().fds if self._cover is None else (self._pty.master,)

    @property
    def writable_fds(self) -> tuple[int, ...]:
        """Nothing is written under the cover."""
        return super().writable_fds if self._cover is None else ()

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        """Starts the script on its pty, then the cover on the terminal."""
        script = self._pty.start(job.command, job.environ)
        self._has_begun = True
        self._size.tell()
        try:
            self._cover = subprocess.Popen(self._command)  # noqa: S603  # ourselves
        except OSError:
            self._uncover()
        return script

    def left_s(self) -> Optional[float]:
        """Until the cover is looked after."""
        return super().left_s() if self._cover is None else _LOOK_S

    def turn(self, readable: set[int]) -> None:
        """Keeps what is printed, and takes the terminal when the cover has closed."""
        if self._cover is None:
            super().turn(readable)
            return
        if self._pty.master in readable:
            self._hold()
        if self._cover.poll() is not None:
            self._uncover()

    def signalled(self, signum: int) -> None:
        """The script's terminal has the size of ours, also under the cover; stopping is nothing there."""
        if self._cover is None:
            super().signalled(signum)
        elif signum == signal.SIGWINCH:
            self._region.resize(*self._screen.size)
            self._size.tell()

    def end(self) -> None:
        """Closes the cover, hands on what was held, and puts everything back."""
        if self._cover is not None:
            self._close(self._cover)
            self._cover = None
            self._screen.write(self._filter.feed(self._held))
            self._held = b""
        super().end()

    def _hold(self) -> None:
        data, _ = self._pty.read()
        self._keep(data)
        self._held = (self._held + data)[-_MAX_HELD:]

    def _uncover(self) -> None:
        """The terminal is ours, as at an inline view's start; what was printed meanwhile comes first."""
        self._cover = None
        held, self._held = self._held, b""
        if len(held) == _MAX_HELD:
            held = held[held.find(b"\n") + 1 :]  # its first line is half a one
        self._panel = Panel(
            self._keeper, title=self._title
        )  # the collector was not asked meanwhile, so it is not silent
        self._screen.raw()
        question = QUESTION if self._background.is_asked else b""
        self._screen.write(question + self._region.open() + self._filter.feed(held))
        self._wants_draw = True
        self._size.tell()

    @staticmethod
    def _close(cover: subprocess.Popen[bytes]) -> None:
        cover.terminate()
        try:
            cover.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            cover.kill()
            with suppress(OSError):
                cover.wait(_PATIENCE_S)
