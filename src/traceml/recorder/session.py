"""Opens the recording of a run in this process, and closes it: the ring, the hooks, the end."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Callable, Final, Optional

from traceml.recorder import memory, step
from traceml.recorder.hooks import backward, checkpoint, collections, forward, loader, optimizer
from traceml.recorder.identity import identify, process_start_ns
from traceml.recorder.pen import Pen
from traceml.schema import phases
from traceml.schema.records import RankEnd, Watching
from traceml.wire import edges
from traceml.wire.ring import ANSWERED, WANTED, RingWriter

_HOOKS: Final[dict[str, Callable[[Pen], str]]] = {
    phases.INPUT: loader.install,
    phases.FORWARD: forward.install,
    phases.BACKWARD: backward.install,
    phases.OPTIMIZER: optimizer.install,
    phases.CHECKPOINT: checkpoint.install,
    phases.GC: collections.install,
}
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

    Raises:
        OSError: The ring cannot be made.
    """

    def __init__(
        self, ring_dir: Path, *, total_steps: Optional[int] = None, max_steps: Optional[int] = None, first: bool = True
    ) -> None:
        global _open  # noqa: PLW0603  # what a fork must find
        started_ns = process_start_ns() if first else time.perf_counter_ns()
        name = f"{os.getpid()}-{next(_rings)}.ring"
        ring = RingWriter(
            ring_dir / name,
            process_start_ns=started_ns,
            anchor_ns=time.perf_counter_ns(),
            anchor_wall_ns=time.time_ns(),
        )
        self.pen = Pen(ring)
        self.is_open = True
        self.identity = identify(started_ns=started_ns)
        ring.send(self.identity)
        try:
            self._install(total_steps)
        except BaseException:
            self.pen.guard.remove_all()
            self.pen.owner = None
            raise
        if max_steps is not None:
            self.pen.stop_at, self.pen.stop = max_steps, lambda: self.close("trace-max-steps")
        _open = self
        _watch_forks()
        step.begin_session(self.pen)

    def _install(self, total_steps: Optional[int]) -> None:
        watched, unseen = [phases.EVAL], {}
        for phase, install in _HOOKS.items():
            try:
                why_not = install(self.pen)
            except Exception as error:  # noqa: BLE001  # guard
                self.pen.guard.fault(phase, error)
                why_not = f"the hook could not be installed ({type(error).__name__})"
            if why_not:
                unseen[phase] = why_not
            else:
                watched.append(phase)
        allocator = memory.find_allocator()
        if allocator is not None:
            memory.watch(self.pen, allocator, rank=self.identity.rank)
        self.pen.ring.send(Watching(tuple(watched), unseen, total_steps))

    def ask(self, *, patience_s: float) -> bool:
        """Asks the collector for a report of all steps so far; True when it came within `patience_s` seconds."""
        header = self.pen.ring.header
        wanted = header[WANTED] = header[WANTED] + 1
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
        at = self.pen.stamp(edges.RUN_END)
        self.pen.owner = None
        self.pen.publish()
        self.pen.ring.send(RankEnd(self.identity.rank, how, exception, int(at * 1e9)))
        self.pen.ring.close()


def exception_name() -> str:
    """The exception that is about to end this process, as far as the interpreter noted it; empty for none."""
    found = getattr(sys, "last_exc", None)
    kind = type(found) if found is not None else getattr(sys, "last_type", None)
    return kind.__name__ if kind is not None else ""


def _watch_forks() -> None:
    """A forked child (a DataLoader worker) never writes into its parent's ring."""
    global _knows_forks  # noqa: PLW0603  # registered once a process
    if not _knows_forks and hasattr(os, "register_at_fork"):
        _knows_forks = True
        os.register_at_fork(after_in_child=_forget_in_child)


def _forget_in_child() -> None:
    if _open is not None:
        _open.is_open = False
        _open.pen.owner = None
        step.begin_session(None)
