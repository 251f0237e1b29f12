"""Counts our own faults, says so once, and switches a hook off that keeps failing: the one address of fail-open."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Callable, Final, Optional

from traceml.recorder import interrupts
from traceml.schema.records import Fault

_NUM_TOLERATED: Final = 3
_MAX_ERROR: Final = 200


class Guard:
    """Our faults inside the user's process, by hook. Nothing of ours is raised here.

    Args:
        report: Takes each fault's record (into the ring).
        unwind: Leaves nothing open, where what the user's signal handler raised interrupted a hook.
    """

    def __init__(self, report: Callable[[Fault], None], unwind: Callable[[], None]) -> None:
        self._report, self._unwind = report, unwind
        self._num_times: dict[str, int] = {}
        self._removals: dict[str, Callable[[], None]] = {}
        self._has_spoken = False

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks that are on."""
        return frozenset(self._removals)

    def is_on(self, hook: str) -> bool:
        """Whether a hook is installed and not switched off."""
        return hook in self._removals

    def register(self, hook: str, remove: Callable[[], None]) -> None:
        """Names how a hook is taken off; `remove` may be called more than once."""
        self._removals[hook] = remove

    def fault(self, hook: str, error: BaseException) -> None:
        """Counts a fault of `hook`; the third one takes it off.

        Raises:
            BaseException: The error itself, where it is none of ours: a signal handler of the user's raised it.
        """
        try:
            is_users = interrupts.is_users(error)
            if is_users:
                self._unwind()
        except Exception as fault:  # noqa: BLE001
            interrupts.let_pass(fault)
            is_users = False
        if is_users:
            interrupts.let_pass(error)
        try:
            times = self._num_times[hook] = self._num_times.get(hook, 0) + 1
            is_off = times >= _NUM_TOLERATED and self.remove(hook)
            if times <= _NUM_TOLERATED:
                text = f"{type(error).__name__}: {error}"[:_MAX_ERROR]
                self._say(hook, text)
                self._report(Fault(hook, text, times, is_off))
        except Exception as fault:  # noqa: BLE001  # the last line of defence: training goes on
            interrupts.let_pass(fault)

    def remove(self, hook: str) -> bool:
        """Takes a hook off, once; whether it could be, and is off now."""
        removal = self._removals.pop(hook, None)
        if removal is not None:
            removal()
        return removal is not None

    def remove_all(self) -> None:
        """Takes every hook off, the newest first."""
        users: Optional[BaseException] = None
        for hook in reversed(list(self._removals)):
            try:
                try:
                    self.remove(hook)
                except Exception as error:  # noqa: BLE001  # the others must come off too
                    self.fault(hook, error)
            except BaseException as error:  # noqa: BLE001  # a signal handler's: so must they
                users = error
        if users is not None:
            raise users

    def _say(self, hook: str, text: str) -> None:
        if self._has_spoken:
            return
        self._has_spoken = True
        say(f"a fault of ours in '{hook}' ({text}); the training is not affected, the summary counts it.")


def say(line: str) -> None:
    """One line of ours on stderr, never raising: stderr may be closed or full."""
    text = f"TraceML: {line}\n"
    with contextlib.suppress(Exception):
        stream = sys.__stderr__
        if stream is not None and stream is sys.stderr:
            # Past its buffer: words that stay in it, of a full stderr, would make the script's exit code 120.
            stream.flush()
            os.write(stream.fileno(), text.encode(stream.encoding, "replace"))
            return
        sys.stderr.write(text)
        sys.stderr.flush()
