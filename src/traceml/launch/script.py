"""Runs the script unchanged, passes signals on, and sees it end."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional

from traceml.errors import CommandError
from traceml.launch.signals import Deadline, Signals
from traceml.launch.tree import Tree

if TYPE_CHECKING:
    from traceml.launch.collector import Keeper
    from traceml.launch.view import Job, View

_COLLECTOR_S = 15.0  # 0.3 s are usual; a crowded machine may need many times that
_INTERRUPTED_S = 5.0  # somebody waits for the prompt
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


def run_script(job: Job, keeper: Keeper, view: View) -> Outcome:
    """Runs the job beside its collector until both have ended.

    Signals are passed on as the view does. After a SIGTERM to us, what the script's own end leaves of its process tree
    is ended, too. Sleeps in the kernel between events; the collector is waited for at most 15 s, 5 s after a signal.

    Args:
        job: The command and its environment.
        keeper: The run's collector, not started yet.
        view: What the script sees as its descriptors.

    Raises:
        CommandError: `no-command`: the system refuses to start it.
    """
    signals = Signals(view.signals, farewell=view.farewell)
    try:
        script = _start(job, view)
        if view.master is not None:
            keeper.hold(view.master)
        keeper.start()
        keeper.tell(script=script.pid)
        outcome = _watch(script, signals, keeper, view)
        name = signal.Signals(outcome.signal).name if outcome.signal else None
        keeper.tell(exit={"code": outcome.code, "signal": name})
        patience_s = _COLLECTOR_S if outcome.signal is None else _INTERRUPTED_S
        _await_collector(signals, keeper, view.signals, patience_s=patience_s)
    finally:
        view.end()
        signals.close()
    return replace(outcome, notes=view.notes)


def _start(job: Job, view: View) -> subprocess.Popen[bytes]:
    try:
        return view.start(job)
    except OSError as error:
        message = (
            f"'{job.command[0]}' cannot be started ({error.strerror}). Name its interpreter: `bash {job.command[0]}`."
        )
        raise CommandError(message, code=126) from None


def _watch(script: subprocess.Popen[bytes], signals: Signals, keeper: Keeper, view: View) -> Outcome:
    tree: Optional[Tree] = None
    while script.poll() is None:
        left_s = [s for s in (view.left_s(), None if tree is None else _LOOK_S) if s is not None]
        got, readable = signals.wait(min(left_s, default=None), view.fds, view.writable_fds)
        for signum in got:
            if signum in view.signals:
                view.signalled(signum)
                continue
            if signum in _ENDING and tree is None:
                tree = Tree(script.pid)
                tree.look()
            view.pass_on(signum, whole_group=signals.reached_the_group(signum))
        if tree is not None:
            tree.look()
        _reap_orphans((script.pid, keeper.pid))
        view.turn(readable)
        keeper.revive()
    if tree is not None:
        tree.end()
    view.end()
    code = script.returncode
    return Outcome(script.pid, _SIGNALLED - code, -code) if code < 0 else Outcome(script.pid, code)


def _await_collector(signals: Signals, keeper: Keeper, unmeant: tuple[int, ...], *, patience_s: float) -> None:
    """Waits for the collector's end; a signal ends the waiting, not the collector; but for a window's new size."""
    deadline = Deadline(patience_s)
    while not keeper.is_done and not deadline.is_over:
        got, _ = signals.wait(deadline.left_s)
        if not set(got).issubset(unmeant):
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
