"""Runs the script unchanged, passes signals on, and sees it end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Mapping, Optional, Sequence

from traceml.errors import CommandError
from traceml.launch.output import Capture
from traceml.launch.signals import Deadline, Signals
from traceml.launch.tree import Tree

if TYPE_CHECKING:
    from traceml.launch.collector import Keeper

_COLLECTOR_S = 5.0
_LOOK_S = 0.2
_SIGNALLED = 128
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Outcome:
    """How the script, which was process `pid`, ended: the code for the shell, and the signal that ended it."""

    pid: int
    code: int
    signal: Optional[int] = None
    notes: tuple[str, ...] = ()  # for the user


@dataclass(frozen=True)
class Job:
    """What is to be run. `log` asks for a copy of the script's output there."""

    command: Sequence[str]
    environ: Mapping[str, str]
    log: Optional[Path] = None


def run_script(job: Job, keeper: Keeper, *, show: Callable[[str], None], interval_s: Optional[float]) -> Outcome:
    """Runs the job beside its collector until both have ended.

    The script inherits descriptors, process group and dispositions. Signals sent to us alone are passed on; those that
    reached the whole group are not sent twice. After a SIGTERM to us, what the script's own end leaves of its process
    tree is ended, too. Sleeps in the kernel between events; the collector is waited for at most 5 s.

    Args:
        job: The command and its environment.
        keeper: The run's collector, not started yet.
        show: Takes the lines that say where the run is.
        interval_s: Seconds between two of them; None: no lines.

    Raises:
        CommandError: `no-command`: the system refuses to start it.
    """
    signals = Signals()
    capture = Capture(job.log) if job.log is not None else None
    try:
        script = _start(job, capture)
        keeper.start()
        keeper.tell(script=script.pid)
        outcome = _watch(script, signals, keeper, capture, _Lines(keeper, show, interval_s))
        name = signal.Signals(outcome.signal).name if outcome.signal else None
        keeper.tell(exit={"code": outcome.code, "signal": name})
        _await_collector(signals, keeper)
    finally:
        signals.close()
    notes = (capture.note,) if capture is not None and capture.note else ()
    return replace(outcome, notes=notes)


def _start(job: Job, capture: Optional[Capture]) -> subprocess.Popen[bytes]:
    """Starts the script; what we opened ourselves is not inherited, everything the shell gave us is."""
    outputs = capture.writers if capture is not None else (None, None)
    try:
        script = subprocess.Popen(  # noqa: S603  # what the user asked for
            list(job.command), env=dict(job.environ), stdout=outputs[0], stderr=outputs[1], close_fds=False
        )
    except OSError as error:
        message = (
            f"'{job.command[0]}' cannot be started ({error.strerror}). Name its interpreter: `bash {job.command[0]}`."
        )
        raise CommandError(message, code=126) from None
    if capture is not None:
        capture.started()
    return script


class _Lines:
    """Asks the collector for a line every interval, and hands on what it says."""

    def __init__(self, keeper: Keeper, show: Callable[[str], None], interval_s: Optional[float]) -> None:
        self._keeper, self._show, self._interval_s = keeper, show, interval_s
        self._next = time.monotonic() + (interval_s or 0)

    @property
    def fds(self) -> tuple[int, ...]:
        return self._keeper.fds

    def left_s(self) -> Optional[float]:
        return None if self._interval_s is None else max(0.0, self._next - time.monotonic())

    def turn(self, readable: set[int]) -> None:
        if readable.intersection(self.fds):
            text = self._keeper.answer().text
            if text:
                self._show(text)
        if self._interval_s is not None and time.monotonic() >= self._next:
            self._keeper.ask()
            self._next = time.monotonic() + self._interval_s


def _watch(
    script: subprocess.Popen[bytes],
    signals: Signals,
    keeper: Keeper,
    capture: Optional[Capture],
    lines: _Lines,
) -> Outcome:
    tree: Optional[Tree] = None
    while script.poll() is None:
        timeout_s = lines.left_s() if tree is None else _LOOK_S
        got, readable = signals.wait(timeout_s, lines.fds)
        for signum in got:
            if signum in _ENDING and tree is None:
                tree = Tree(script.pid)
                tree.look()
            if not signals.reached_the_group(signum) and script.poll() is None:
                script.send_signal(signum)
        if tree is not None:
            tree.look()
        _reap_orphans((script.pid, keeper.pid))
        lines.turn(readable)
        keeper.revive()
    if tree is not None:
        tree.end()
    if capture is not None:
        capture.drain()
    code = script.returncode
    return Outcome(script.pid, _SIGNALLED - code, -code) if code < 0 else Outcome(script.pid, code)


def _await_collector(signals: Signals, keeper: Keeper) -> None:
    """Waits for the collector's end; any signal ends the waiting, not the collector."""
    deadline = Deadline(_COLLECTOR_S)
    while not keeper.is_done and not deadline.is_over:
        got, _ = signals.wait(deadline.left_s)
        if got:
            break
        _reap_orphans((keeper.pid,))
    keeper.let_go()


def _reap_orphans(ours: tuple[Optional[int], ...]) -> None:
    """As PID 1, which inherits every orphan of a container, waits for those that have ended."""
    if os.getpid() != 1:
        return
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in ours:
            return  # Popen waits for that one; the next orphan's turn comes with its SIGCHLD
        os.waitpid(found.si_pid, 0)
