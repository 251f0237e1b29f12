"""Starts the collector in a session of its own, tells it how the script ended, starts it again when it died."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Optional

from traceml.launch.isolated import isolated
from traceml.wire import panel
from traceml.wire.manifest import read_manifest
from traceml.wire.node import read_node
from traceml.wire.ringfolder import LOG, remove_ring_folder

if TYPE_CHECKING:
    from traceml.schema.panel import PanelRequest

MAX_STARTS: Final = 4
_MAX_ANSWER: Final = 1 << 16  # what a pipe holds
_MAX_PENDING: Final = 2  # a question after a resize need not wait for the answer to the one before
_LOOK_S: Final = 0.01
_alone: dict[Path, subprocess.Popen[bytes]] = {}
_MODULES: Final = ("psutil", "pynvml")


class _Detached(subprocess.Popen[bytes]):
    """A process that may outlive who started it: nothing is said of it in the user's program."""

    def __del__(self) -> None:
        """No ResourceWarning, which `python -W error` would print at the very end."""


def start_collector(folder: Path, *, pipe: bool, held: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """Starts `traceml.cli.node` for a run: own session, no descriptor of the user's, at most 2 ms of the caller's time.

    Args:
        folder: The run folder, with its manifest.
        pipe: Give it a pipe as stdin, by which it hears from its launcher, and one as stdout, by which it answers; else
            neither.
        held: Descriptors of ours that it has, too, under the same numbers.

    Returns:
        The process; keep it, and its `stdin`, as long as the run lasts.

    Raises:
        OSError: No process can be started.
        RunError: The folder has no sound manifest.
    """
    process = _start(folder, pipe=pipe, held=held)
    if not pipe:
        _alone[folder] = process
    return process


def await_verdict(ring_dir: Path, folder: Path, *, patience_s: float) -> Optional[str]:
    """Waits until the collector has written the summary; one that died is started again, once.

    Args:
        ring_dir: The run's ring folder, where the collector says how far it is.
        folder: The run folder.
        patience_s: How long to wait at most.

    Returns:
        The verdict in one line, without our name before it; None when it is not there in time.
    """
    deadline = time.monotonic() + patience_s
    while True:
        node = read_node(ring_dir)
        if node.is_done:
            # After shutdown() the folder still answers summary(); at the very exit the collector removes it itself.
            atexit.register(remove_ring_folder, ring_dir)
            return node.verdict
        process = _alone.get(folder)
        if process is not None and process.poll() is not None and ring_dir.is_dir():
            del _alone[folder]
            _start(folder, pipe=False)  # once: it is not looked at again
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOOK_S)


def _start(folder: Path, *, pipe: bool, held: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    log = Path(read_manifest(folder).ring_dir) / LOG
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    output = os.open(log, flags, 0o600)
    try:
        return _Detached(  # our own interpreter, our own module
            isolated("traceml.cli.node", "--run", str(folder.absolute()), needs=_MODULES),
            stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else output,
            stderr=output,
            cwd="/",
            start_new_session=True,
            close_fds=True,
            pass_fds=held,
        )
    finally:
        os.close(output)


class Answer(NamedTuple):
    """What the collector said: lines for the user, each with its newline, and the newest panel, if there was one."""

    text: str = ""
    panel: Optional[tuple[str, ...]] = None


class Keeper:
    """Keeps one collector alive for a run: starts it, starts it again at most three times, tells it the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._num_starts = 0
        self._told: list[dict[str, Any]] = []
        self._held: tuple[int, ...] = ()
        self._num_pending = 0  # panels asked for
        self._rest = b""  # of an answer that came in pieces
        self.note = ""

    def start(self) -> None:
        """Starts the collector; what cannot be started is said in `note`, and the training goes on."""
        self._num_starts += 1
        self._num_pending, self._rest = 0, b""
        try:
            self._process = start_collector(self._folder, pipe=True, held=self._held)
        except OSError as error:
            self._process = None
            self.note = (
                f"TraceML: the collector could not be started ({error.strerror}); `traceml view` reads the rings."
            )
            return
        for line in self._told:
            self._write(line)

    def hold(self, fd: int) -> None:
        """The script's terminal: every collector has it, too, and empties it into the log once we are gone."""
        self._held = (fd,)
        self.tell(terminal=fd)

    def tell(self, **line: Any) -> None:
        """Sends one line, now and to every later collector of this run."""
        self._told.append(line)
        self._write(line)

    def ask(self) -> None:
        """Asks for a line that says where the run is; it comes on `fds`."""
        self._write({"line": True})

    def ask_panel(self, request: PanelRequest) -> bool:
        """Asks for the panel's rows; they come on `fds`.

        Returns:
            Whether it was asked: a collector that owes two answers is stopped or busy, and asking on would fill its
            pipe until we wait for it.
        """
        if self._num_pending >= _MAX_PENDING or not self.fds:
            return False
        self._num_pending += 1
        self._write(panel.question(request))
        return True

    @property
    def fds(self) -> tuple[int, ...]:
        """Where answers come."""
        process = self._process
        return () if process is None or process.stdout is None else (process.stdout.fileno(),)

    def answer(self) -> Answer:
        """What came; call it when `fds` are readable. What is not a whole line yet waits for its rest."""
        assert self._process is not None
        assert self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), _MAX_ANSWER)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data:  # it has died
            self._process.stdout.close()
            self._process.stdout = None
            self._rest = b""
        text, rows = [], None
        for line in lines:
            found = panel.rows_of(line)
            if found is None:
                text.append(line.decode(errors="replace") + "\n")
            else:
                rows, self._num_pending = found, 0
        return Answer("".join(text), rows)

    def revive(self) -> None:
        """Starts the collector again when it has died before its work was done."""
        if self._process is None or self._process.poll() is None:
            return
        code = self._process.returncode
        self._close()
        if code == 0:
            self._process = None
        elif self._num_starts < MAX_STARTS:
            self.start()
        else:
            self._process = None
            self.note = f"TraceML: the collector died {self._num_starts} times ({self._last_words() or code})."

    @property
    def pid(self) -> Optional[int]:
        """The collector's process, None when there is none."""
        return None if self._process is None else self._process.pid

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to wait for."""
        self.revive()
        return self._process is None

    def let_go(self) -> None:
        """Closes the pipe; a collector that still works goes on alone."""
        if self._process is not None:
            self._close()

    def _write(self, line: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has died: SIGCHLD is on its way, and the next one is told everything again

    def _close(self) -> None:
        assert self._process is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
            self._process.stdout = None
        if self._process.stdin is not None:
            with suppress(OSError):  # unsent bytes for a reader that is gone
                self._process.stdin.close()
            self._process.stdin = None

    def _last_words(self) -> str:
        try:
            text = (Path(read_manifest(self._folder).ring_dir) / LOG).read_text(errors="replace")
        except OSError:
            return ""
        lines = text.strip().splitlines()
        return lines[-1] if lines else ""
