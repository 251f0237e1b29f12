"""Is the inline view: the script's output scrolls in its own terminal, a panel stands below."""

from __future__ import annotations

import os
import signal
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Final, Mapping, Optional

from traceml.launch.output import Log
from traceml.launch.terminal.child import Pty
from traceml.launch.terminal.filter import Filter
from traceml.launch.terminal.keys import QUESTION, Background, colours_of
from traceml.launch.terminal.panel import ASK_S, Panel
from traceml.launch.terminal.region import FAREWELL, Region
from traceml.launch.terminal.screen import MAX_PENDING, Screen
from traceml.launch.terminal.size import Size
from traceml.schema.panel import PanelRequest

if TYPE_CHECKING:
    from pathlib import Path

    from traceml.launch.terminal.panel import Asked
    from traceml.launch.view import Job

_MAX_TYPED: Final = 1 << 20  # that a script has not read; more is lost, as the kernel does, but a Ctrl-C is not
_RETRY_S: Final = 0.1  # when the script is in the middle of something
_WRAP_S: Final = 1.0  # for a full last column to be followed by something
_ANSWER_S: Final = 0.1
_SOON_S: Final = 2.0  # who has not answered by then never will
_STREAM_S: Final = 0.02  # output that follows so soon is a stream: nobody reads each line as it comes
_PAUSE_S: Final = 0.01  # then so much is let come together; a turn for each line would cost more than the line
_FEW: Final = 12 << 10  # bytes in a read; at twice as many the pty would be full before the pause is over
_MAX_LEFT: Final = 1 << 18  # bytes that an ended script can have left; more is a daemon of its
_TO_COLUMN: Final = b"\x1b[%dG"


class Inline:
    """A pty for the script, its bytes into the terminal's scroll region, every key to the script.

    Whatever fails of the panel gives the panel up, never the copying of bytes.

    Args:
        keeper: The run's collector.
        log: Where what is printed is kept.
        title: The panel before the first answer.
        environ: Says what the terminal can show.
        is_ascii: The terminal carries nothing else.

    Raises:
        OSError: No terminal or no pty can be had: nothing was changed.
    """

    def __init__(self, keeper: Asked, *, log: Path, title: str, environ: Mapping[str, str], is_ascii: bool) -> None:
        self._screen = Screen()
        try:
            rows, columns = self._screen.size
            self._region = Region(rows, columns)
            self._pty = Pty(rows=self._region.script_rows, columns=columns, modes=self._screen.modes)
        except OSError:
            self._screen.close()
            raise
        self._size = Size(self._pty, self._region)
        self._filter = Filter(self._region)
        self._panel = Panel(keeper, title=title)
        self._background = Background(environ)
        self._colours, self._is_ascii = colours_of(environ), is_ascii
        self._note = ""
        self._log_path, self._log = log, self._open_log(log)
        self._typed = b""  # keys that the script's input had no room for
        self._carriage = b""  # a carriage return whose newline may follow
        self._began_at = self._copied_at = self._paused_until = 0.0
        self._wants_draw = False
        self._drawn_at = 0.0
        self._full_since: Optional[float] = None  # the cursor stands behind the last column
        self._is_away = False  # in the background, after Ctrl-Z and `bg`
        self._is_stopped = False
        self._has_begun = self._is_over = False
        self._has_failed = False

    signals: tuple[int, ...] = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)

    @property
    def master(self) -> Optional[int]:
        """The pty's other end."""
        return self._pty.master

    @property
    def farewell(self) -> Optional[tuple[int, bytes]]:
        """Without it a shell would go on scrolling above a dead panel."""
        return self._screen.fd, FAREWELL

    @property
    def fds(self) -> tuple[int, ...]:
        """Output, keys, and the collector's answers."""
        found = [*self._panel.fds]
        if self._screen.num_pending < MAX_PENDING and time.monotonic() >= self._paused_until:
            found.append(self._pty.master)
        if self._screen.has_keys and not self._is_away:
            found.append(self._screen.fd)
        return tuple(found)

    @property
    def writable_fds(self) -> tuple[int, ...]:
        """The terminal, and the script's input, while they have not taken all."""
        found = [self._screen.fd] if self._screen.num_pending else []
        return (*found, self._pty.master) if self._typed else tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong with the log or the panel."""
        log = self._log.note if self._log is not None else ""
        return tuple(filter(None, (self._note, log)))

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        """Starts the script on its pty, then takes the terminal."""
        script = self._pty.start(job.command, job.environ)
        self._has_begun, self._began_at = True, time.monotonic()
        self._screen.raw()
        self._screen.write((QUESTION if self._background.is_asked else b"") + self._region.open())
        self._wants_draw = True
        self._draw()
        return script

    def left_s(self) -> Optional[float]:
        """Until the panel is asked for, drawn, or the foreground may be ours again."""
        now = time.monotonic()
        if self._paused_until > now:
            return self._paused_until - now
        if self._size.left_s is not None:
            return self._size.left_s
        if self._is_away:
            return ASK_S
        if not self._region.num_rows:
            return None
        return min(self._panel.left_s, _RETRY_S) if self._wants_draw else self._panel.left_s

    def turn(self, readable: set[int]) -> None:
        """Copies what came, both ways; asks and draws when it is time."""
        if self._is_away and self._screen.is_ours:
            self._come_back()
        if self._screen.fd in readable:
            self._take_keys(self._screen.keys())
        self._size.turn()
        self._type(b"")
        self._screen.send()
        if self._pty.master in readable:
            self._copy()
        if readable.intersection(self._panel.fds) and self._panel.hear():
            self._wants_draw = True
        self._wants_draw = self._wants_draw or self._panel.is_silent
        if self._is_away or not self._region.num_rows:
            return
        self._panel.ask(self._request())
        self._draw()

    def signalled(self, signum: int) -> None:
        """The terminal has another size; or we are to stop, or go on."""
        if signum == signal.SIGTSTP:
            self._suspend()
        elif signum == signal.SIGCONT:
            self._come_back()
        else:
            self._screen.write(b"" if self._is_away else self._filter.widen())
            self._lay_out()

    def pass_on(self, signum: int, *, whole_group: bool) -> None:
        """The script is in a session of its own: nothing reaches it without us. A hang-up is its whole terminal's."""
        script = self._pty.process
        assert script is not None
        if whole_group or signum == signal.SIGHUP:
            self._pty.send(signum)
        elif script.poll() is None:
            script.send_signal(signum)

    def end(self) -> None:
        """Hands on what the script left; the terminal is as it was, the cursor at the start of a line."""
        if self._is_over:
            return
        self._is_over = True
        if self._has_begun:
            self._give_back()
        self._screen.close()
        self._pty.close()
        if self._log is not None:
            self._log.close()
            if not self._has_begun:
                self._log_path.unlink()  # a run that never began leaves no folder

    def _give_back(self) -> None:
        num_bytes = 0
        while num_bytes < _MAX_LEFT:
            num_new = self._copy()
            self._screen.send_all()
            num_bytes += num_new
            if not num_new:
                break
        self._await_answer()
        column = self._filter.column()
        self._screen.write(self._filter.flush() + self._leave() + (b"\r\n" if column else b""))
        self._screen.send_all()
        if not self._is_away:
            self._screen.type_back(self._pty.unread() + self._typed)
        self._screen.cooked()

    # -- output -------------------------------------------------------------------------------------------------------

    def _copy(self) -> int:
        """From the script to the terminal and the log; how many bytes."""
        data, _ = self._pty.read()
        if not data:
            return 0
        now = time.monotonic()
        if len(data) < _FEW and now - self._copied_at < _STREAM_S:
            self._paused_until = now + _PAUSE_S
        self._copied_at = now
        self._keep(data)
        if self._has_failed:
            self._screen.write(data)
            return len(data)
        was_alternate = self._filter.modes.alternate
        try:
            passed = self._filter.feed(data)
        except Exception as error:  # noqa: BLE001  # whatever the script's bytes did to us, they reach the terminal
            self._give_up(error)
            passed = data
        self._screen.write(passed)
        if bool(was_alternate) != bool(self._filter.modes.alternate):
            self._change_screen()
        return len(data)

    def _change_screen(self) -> None:
        if self._filter.modes.alternate:
            self._screen.write(self._filter.widen())
            self._size.enter()
        else:
            self._size.leave()

    def _keep(self, data: bytes) -> None:
        """The log has newlines as the script wrote them; the pty put a carriage return before each."""
        if self._log is None:
            return
        data = self._carriage + data
        self._carriage = b"\r" if data.endswith(b"\r") else b""
        data = data[: len(data) - len(self._carriage)].replace(b"\r\n", b"\n")
        if data:
            self._log.write(data)

    def _open_log(self, path: Path) -> Optional[Log]:
        try:
            return Log(path)
        except OSError as error:
            self._note = f"TraceML: no copy of the output in '{path}' ({error.strerror})."
            return None

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _take_keys(self, keys: bytes) -> None:
        keys = self._background.take(keys)
        stop = self._pty.character(termios.VSUSP)
        before, found, behind = keys.partition(stop) if stop is not None else (keys, b"", b"")
        self._type(before)
        if found:
            self._suspend()
            self._type(behind)

    def _type(self, keys: bytes) -> None:
        """Keys to the script; one that ends it goes before all that wait for room."""
        if self._typed and keys:
            for name, signum in ((termios.VINTR, signal.SIGINT), (termios.VQUIT, signal.SIGQUIT)):
                key = self._pty.character(name)
                if key is not None and key in keys:
                    self._typed = b""
                    self._pty.send(signum)
                    return
        self._typed = (self._typed + keys)[:_MAX_TYPED]
        if self._typed:
            self._typed = self._typed[self._pty.type(self._typed) :]

    def _await_answer(self) -> None:
        """The answer to a run of a moment would be typed into the shell."""
        until = min(time.monotonic() + _ANSWER_S, self._began_at + _SOON_S)
        is_open = not self._is_away and not self._screen.is_gone
        while is_open and self._background.is_asked and time.monotonic() < until:
            self._background.take(self._screen.keys())
            time.sleep(0.01)

    # -- the panel ----------------------------------------------------------------------------------------------------

    def _request(self) -> PanelRequest:
        background = "light" if self._background.is_light else "dark"
        return PanelRequest(
            self._region.columns, self._region.num_rows, self._colours, background, ascii=self._is_ascii
        )

    def _draw(self) -> None:
        if not self._wants_draw and not self._filter.wants_redraw:
            return
        now = time.monotonic()
        if now - self._drawn_at < _RETRY_S or not self._filter.is_between or self._screen.num_pending:
            self._wants_draw = True
            return
        try:
            self._draw_now(now)
        except Exception as error:  # noqa: BLE001  # the panel is not worth a byte of the script's
            self._give_up(error)

    def _draw_now(self, now: float) -> None:
        behind = b""
        if self._filter.column() >= self._region.columns:
            # Restoring the cursor loses, in tmux, that the next character wraps: only writing the last one again helps.
            self._full_since = self._full_since or now
            last = self._filter.last_character()
            if last is None or now - self._full_since < _WRAP_S:
                self._wants_draw = True
                return
            behind = _TO_COLUMN % self._region.columns + last.encode()
        self._full_since = None
        data = self._region.draw(self._panel.rows, shown=self._filter.modes.shown, force=self._filter.wants_redraw)
        self._wants_draw = self._filter.wants_redraw = False
        self._drawn_at = now
        if data:
            self._screen.write(data + behind)

    def _give_up(self, error: Exception) -> None:
        self._has_failed = True
        self._note = f"TraceML: the panel was given up ({type(error).__name__}: {error})."
        self._screen.write(self._region.give_up())
        self._size.tell()

    def _lay_out(self) -> None:
        """The terminal's size may be another one."""
        rows, columns = self._screen.size
        closing = self._region.resize(rows, columns)
        if self._has_failed:
            self._region.give_up()
        opening = b"" if self._filter.modes.alternate or self._is_away else self._region.open()
        self._screen.write(closing + opening)
        self._size.tell()
        self._wants_draw = self._filter.wants_redraw = True
        self._drawn_at = 0.0
        if self._region.num_rows:
            self._panel.ask(self._request())
            self._draw()

    def _leave(self) -> bytes:
        """What gives the terminal back."""
        return self._filter.leave() + self._region.close() + self._filter.modes.undo()

    # -- stopping and going on ----------------------------------------------------------------------------------------

    def _suspend(self) -> None:
        """Ctrl-Z: the kernel would not stop a session of its own, so we stop it, and ourselves behind it."""
        self._pty.send(signal.SIGSTOP)
        self._is_stopped = True
        self._copy()
        self._screen.write(self._leave())
        self._screen.send_all()
        self._screen.cooked()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        # The whole group, as the kernel does it: a shell waits for make, too. Where nobody would ever continue us (an
        # orphaned group), it stops nobody.
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._come_back()

    def _come_back(self) -> None:
        """After `fg`, the panel; after `bg`, the output alone."""
        self._is_away = not self._screen.is_ours
        if not self._is_away:
            self._screen.raw()
            is_resized = self._screen.size != (self._region.rows, self._region.columns)
            again = self._filter.return_(is_resized=is_resized) if self._is_stopped else b""
            self._screen.write(again + self._filter.modes.redo())
        self._panel.wake()
        self._lay_out()
        if self._is_stopped:
            self._is_stopped = False
            self._pty.send(signal.SIGCONT)
            if self._filter.modes.alternate:
                self._size.nudge()
