"""Opens the recording of a run in this process, and closes it: the ring, the hooks, the end."""

from __future__ import annotations

import itertools
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Callable, Collection, Final, Mapping, Optional

from traceml.recorder import step, tracebacks, wraps
from traceml.recorder.accelerator import Machine, find_accelerator, host_clock_note
from traceml.recorder.arrival import Arrival
from traceml.recorder.bill import HOOK as BILL
from traceml.recorder.bill import Biller
from traceml.recorder.device import HOOK as DEVICE
from traceml.recorder.device import Device
from traceml.recorder.hooks import (
    backward,
    checkpoint,
    collections,
    compiled,
    compiler,
    debugger,
    forward,
    inference,
    loader,
    method,
    optimizer,
    sync,
)
from traceml.recorder.identity import core_wait_ns, identify, process_start_ns
from traceml.recorder.pen import Pen
from traceml.recorder.shedding import sheds_of
from traceml.schema import phases
from traceml.schema.records import RankEnd, RankIdentity
from traceml.wire import edges
from traceml.wire.ring import ANSWERED, WANTED, RingWriter
from traceml.wire.ringfolder import BELL

_HOOKS: Final[dict[str, Callable[[Pen], str]]] = {
    phases.COMPILE: compiler.install,  # first: the optimizer's hooks ask whether it will be heard of
    phases.INPUT: loader.install,
    phases.FORWARD: forward.install,
    compiled.HOOK: compiled.install,
    method.HOOK: method.install,
    phases.BACKWARD: backward.install,
    sync.HOOK: sync.install,
    phases.OPTIMIZER: optimizer.install,
    phases.CHECKPOINT: checkpoint.install,
    phases.GC: collections.install,
}
_UNSEATED: Final = ".waiting"  # behind a ring's name: no collector looks at it
_PART_OF: Final = {
    compiled.HOOK: phases.FORWARD,
    method.HOOK: phases.COMPILE,
    sync.HOOK: phases.BACKWARD,
}  # no phases of their own
_NOT_ASKED: Final = "not asked for in init()"
_MACHINE: Final = Machine()
_rings = itertools.count()
_open: Optional[Session] = None
_knows_forks = False


class Session:
    """A recording that runs: from `init()` to `shutdown()`, or to the process's end.

    Args:
        ring_dir: The run's ring folder.
        total_steps: As told by the user, for the time left.
        max_steps: After so many steps everything comes off again; None: never.
        first: The process's first run; its startup begins when the process did.
        infer: Whether steps are inferred until the first `trace_step`.
        is_seated: Whether the process counts as a rank at once, or only after `seat`.
        only: The phases whose hooks are installed; None: all.
        machine: The clock and the accelerator.

    Raises:
        OSError: The ring cannot be made.
    """

    def __init__(
        self,
        ring_dir: Path,
        *,
        total_steps: Optional[int] = None,
        max_steps: Optional[int] = None,
        first: bool = True,
        infer: bool = True,
        is_seated: bool = True,
        only: Optional[Collection[str]] = None,
        machine: Machine = _MACHINE,
    ) -> None:
        global _open  # noqa: PLW0603  # what a fork must find
        self._started_ns = started_ns = process_start_ns() if first else time.perf_counter_ns()
        self.is_seated = is_seated
        self._name = f"{os.getpid()}-{next(_rings)}.ring"
        ring = RingWriter(
            ring_dir / (self._name if is_seated else self._name + _UNSEATED),
            process_start_ns=started_ns,
            anchor_ns=time.perf_counter_ns(),
            anchor_wall_ns=time.time_ns(),
        )
        self.pen = Pen(ring, machine.clock)
        self.device: Optional[Device] = None
        self._place: Optional[tuple[str, str]] = None  # the device and its UUID, once the accelerator is in use
        self.is_open = True
        self.identity = identify(started_ns=started_ns, waited_ns=0 if first else core_wait_ns())
        ring.send(self.identity)
        self.pen.total_steps = total_steps
        try:
            self._install(only, infer=infer and only is None)
            self._await_accelerator(machine, wants_h2d=only is None or phases.H2D in only)
            self._bill()
        except BaseException:
            self.pen.guard.remove_all()
            self.pen.owner = None
            raise
        self.pen.stop = lambda: self.close("trace-max-steps")
        if max_steps is not None:
            self.pen.stop_at = max_steps
        _open = self
        _watch_forks()
        step.begin_session(self.pen)

    def identify(self) -> RankIdentity:
        """Who this process is by now: torch.distributed may have been set up since the ring was made."""
        found = identify(started_ns=self._started_ns)
        if self._place is not None:
            found = replace(found, device=self._place[0], device_uuid=self._place[1])
        if found != self.identity:
            self.identity = found
            self.pen.ring.send(found)
        return found

    def _located(self, device: str, uuid: str) -> None:
        """The models' device, which is not always that of the local rank."""
        if (device, uuid) != self._place:
            self._place = (device, uuid)
            self.identify()

    def seat(self, ring_dir: Path) -> None:
        """The process is a rank from now on: its ring stands where the collector of `ring_dir` looks.

        Raises:
            OSError: It cannot be moved there.
        """
        if not self.is_seated:
            self.pen.ring.path = self.pen.ring.path.replace(ring_dir / self._name)
            self.is_seated = True

    def discard(self) -> None:
        """Takes away the ring of a process that never became a rank; call it after `close`."""
        if not self.is_seated:
            self.pen.ring.path.unlink(missing_ok=True)

    def expect(self, total_steps: int) -> None:
        """The user has said how many steps there will be."""
        self.pen.total_steps = total_steps
        self.pen.tell()

    def limit(self, budget_pct: float) -> None:
        """How much of the period tracing may cost, in percent, before optional signals are given up."""
        if self.pen.billing is not None:
            self.pen.billing.budget = budget_pct / 100

    def keep(self, only: Collection[str]) -> None:
        """Takes off every hook that was not asked for; what they have recorded stays."""
        pen = self.pen
        unseen = {phase: _NOT_ASKED for phase in _HOOKS if _PART_OF.get(phase, phase) not in only}
        for phase in (inference.HOOK, *unseen):
            pen.guard.remove(phase)
        pen.sees_models = phases.FORWARD in only
        gone = {*unseen, phases.EVAL} if {phases.FORWARD, phases.INPUT}.isdisjoint(only) else set(unseen)
        pen.watched = tuple(phase for phase in pen.watched if phase not in gone)
        pen.tell(unseen=_of_phases(unseen))

    def _install(self, only: Optional[Collection[str]], *, infer: bool) -> None:
        watched, unseen = [], {}
        self.pen.is_installing = True
        try:
            self.pen.clock_note = host_clock_note()
        except BaseException as error:  # noqa: BLE001  # guard
            self.pen.guard.fault(DEVICE, error)
        arrival = Arrival(self.pen.arrived)
        self.pen.guard.register("arrival", arrival.remove)
        self.pen.late_looks.append(arrival.look)
        self.pen.await_compiler = arrival.wait  # where a hook of ours asks for it
        arrival.look()
        for phase, install in _HOOKS.items():
            if only is not None and _PART_OF.get(phase, phase) not in only:
                unseen[phase] = _NOT_ASKED
                continue
            try:
                why_not = install(self.pen)
            except BaseException as error:  # noqa: BLE001  # guard
                self.pen.guard.fault(phase, error)
                why_not = f"the hook could not be installed ({type(error).__name__})"
            if why_not:
                unseen[phase] = why_not
            else:
                watched.append(phase)
        if infer:
            try:
                inference.install(self.pen)
            except BaseException as error:  # noqa: BLE001  # guard
                self.pen.guard.fault(inference.HOOK, error)
        watched, unseen = [p for p in watched if p in phases.PHASE_INDEX], _of_phases(unseen)
        try:
            debugger.install(self.pen)
        except BaseException as error:  # noqa: BLE001  # guard
            self.pen.guard.fault(debugger.HOOK, error)
        self.pen.sees_models = only is None or phases.FORWARD in only
        if phases.FORWARD in watched or phases.INPUT in watched:
            watched.append(phases.EVAL)
        self.pen.is_installing = False
        self.pen.tell(watched=tuple(watched), unseen=unseen)
        wraps.renew(self.pen)

    def _await_accelerator(self, machine: Machine, *, wants_h2d: bool) -> None:
        """An accelerator is often first used behind init(): it is looked for at the first steps, and now and then."""
        try:
            accelerator = machine.accelerator or find_accelerator()
            if accelerator is not None:
                self.device = Device(
                    self.pen, accelerator, rank=self.identity.rank, wants_h2d=wants_h2d, located=self._located
                )
                self.pen.late_looks.append(self.device.look)
                self.device.look()
        except BaseException as error:  # noqa: BLE001  # guard
            self.pen.guard.fault(DEVICE, error)

    def _bill(self) -> None:
        try:
            self.pen.billing = Biller(self.pen, sheds_of(self.pen))
            self.pen.billing.start()
        except BaseException as error:  # noqa: BLE001  # guard
            self.pen.guard.fault(BILL, error)

    def ask(self, *, patience_s: float) -> bool:
        """Asks the collector for a report of all steps so far; True when it came within `patience_s` seconds."""
        header = self.pen.ring.header
        wanted = header[WANTED] = header[WANTED] + 1
        _ring(self.pen.ring.path.with_name(BELL))
        until = time.monotonic() + patience_s
        while header[ANSWERED] < wanted:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True

    def close(self, how: str, exception: str = "") -> None:
        """Ends the recording: every hook comes off, the end is in the ring. A second call does nothing.

        Args:
            how: "end", "exception", "shutdown" or "trace-max-steps".
            exception: The name of the exception that ended the process.
        """
        global _open  # noqa: PLW0603
        if not self.is_open:
            return
        self.is_open = False
        _open = None
        step.begin_session(None)
        self.pen.guard.remove_all()
        tracebacks.restore()
        self.pen.tell_unrecorded()
        at = self.pen.stamp(edges.RUN_END)
        self.pen.owner = None
        self.pen.publish()
        self.pen.ring.send(RankEnd(self.identity.rank, how, exception, int(at * 1e9)))
        self.pen.ring.close()


def _of_phases(unseen: Mapping[str, str]) -> dict[str, str]:
    return {phase: why for phase, why in unseen.items() if phase in phases.PHASE_INDEX}


def exception_name() -> str:
    """The exception that is about to end this process, as far as the interpreter noted it; empty for none."""
    if hasattr(sys, "ps1"):
        return ""  # a prompt or a notebook: what was noted ended a line or a cell
    found = getattr(sys, "last_exc", None) or sys.exc_info()[1]  # the second: a multiprocessing child at its end
    kind = type(found) if found is not None else getattr(sys, "last_type", None)
    return kind.__name__ if kind is not None and kind is not SystemExit else ""


def _watch_forks() -> None:
    """A forked child (a DataLoader worker) never writes into its parent's ring."""
    global _knows_forks  # noqa: PLW0603  # registered once a process
    if not _knows_forks and hasattr(os, "register_at_fork"):
        _knows_forks = True
        os.register_at_fork(after_in_child=forget_in_child)


def forget_in_child() -> None:
    """What a forked child inherited is its parent's: it writes nothing. A second call does nothing."""
    global _open  # noqa: PLW0603
    if _open is not None:
        _open.is_open = False
        _open.pen.owner = None
        step.begin_session(None)
        _open.pen.guard.remove_all()  # should it train on its own, its own session installs them anew
        _open = None


def _ring(bell: Path) -> None:
    """Wakes the collector; where it does not listen it looks a fifth of a second later anyway."""
    with suppress(OSError):
        fd = os.open(bell, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fd, b".")
        finally:
            os.close(fd)
