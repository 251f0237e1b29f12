"""Watches an accelerator once the process uses it: events beside the edges, copies to it, its memory."""

from __future__ import annotations

from time import perf_counter
from typing import Callable, Final, Optional

from traceml.recorder.accelerator import Accelerator
from traceml.recorder.clock import HOOK as CLOCK
from traceml.recorder.clock import DeviceClock
from traceml.recorder.hooks import captures, forward, h2d
from traceml.recorder.memory import HOOK as MEMORY
from traceml.recorder.memory import Memory
from traceml.recorder.pen import NEVER, Pen
from traceml.recorder.room import Room
from traceml.recorder.sight import out_of_sight
from traceml.schema import phases

HOOK: Final = "device"
_NUM_LOOKS: Final = 3  # for the models' device, once it runs


class Device:
    """All that is watched of one session's accelerator. Until it is in use this costs a call now and then.

    Args:
        pen: Of the session.
        accelerator: What may come to be used.
        rank: Whose memory it is.
        wants_h2d: Whether copies to the device are to be seen.
        located: Called with the device's name (`cuda:3`) and UUID once it is known, and when it is another one.
    """

    def __init__(
        self,
        pen: Pen,
        accelerator: Accelerator,
        *,
        rank: int,
        wants_h2d: bool,
        located: Callable[[str, str], None],
    ) -> None:
        self._located = located
        self._pen, self._accelerator, self._wants_h2d, self._rank = pen, accelerator, wants_h2d, rank
        self._told: Optional[int] = None
        self._is_started = False
        self._num_looks = _NUM_LOOKS
        self.clock: Optional[DeviceClock] = None
        self._memory: Optional[Memory] = None
        self._room: Optional[Room] = None

    def look(self) -> None:
        """Between steps: begins once the accelerator is in use."""
        try:
            if not self._is_started and self._accelerator.is_in_use():
                self._is_started = True
                self._start()
            if self._is_started and self._num_looks and self.clock is not None:
                self._num_looks -= 1
                self.clock.home = home_of(self._accelerator.kind)
                self._locate()
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(HOOK, error)

    def _locate(self) -> None:
        device = self._device()
        if device != self._told:
            self._told = device
            self._located(f"{self._accelerator.kind}:{device}", self._accelerator.uuid(device))

    def _start(self) -> None:
        pen, accelerator = self._pen, self._accelerator
        pen.guard.register(HOOK, self._remove)
        clock = DeviceClock(pen, accelerator, captures.install(pen, accelerator))
        clock.start()
        self.clock = clock
        self._memory = Memory(pen, accelerator, rank=self._rank, device=self._device)
        self._room = Room(pen, accelerator, rank=self._rank, latest=self._latest)
        for start, hook in ((self._memory.start, "memory"), (self._room.start, "out of memory")):
            try:
                start()
            except BaseException as error:  # noqa: BLE001  # guard
                pen.guard.fault(hook, error)
        pen.read_memory, pen.memory_due, pen.due = self._step_ended, 0.0, 0.0  # at each step's end from now on
        watched, unseen = self._watch_copies()
        pen.tell(watched=watched, unseen=unseen)

    def _watch_copies(self) -> tuple[tuple[str, ...], dict[str, str]]:
        if not self._wants_h2d:
            return (), {phases.H2D: "not asked for in init()"}
        try:
            h2d.install(self._pen, self._accelerator.kind)
        except BaseException as error:  # noqa: BLE001  # guard
            self._pen.guard.fault(h2d.HOOK, error)
            return (), {phases.H2D: f"the hook could not be installed ({type(error).__name__})"}
        return (phases.H2D,), {}

    def _step_ended(self, now: float) -> None:
        began = perf_counter()
        if self.clock is not None:
            self.clock.step_ended()
        told = perf_counter()
        if self._memory is not None:
            self._memory.step_ended(now)
        self._pen.spend(CLOCK, told - began)
        self._pen.spend(MEMORY, perf_counter() - told)
        if self._room is not None:
            self._room.tell()

    def _latest(self) -> int:
        return -1 if self.clock is None else self.clock.latest()

    def _device(self) -> int:
        home = None if self.clock is None else self.clock.home
        return self._accelerator.current() if home is None else home

    def _remove(self) -> None:
        self._pen.memory_due = NEVER


def home_of(kind: str) -> Optional[int]:
    """The one device on which the traced models' parameters are; None where that is not one: the current one counts.

    A script may keep its model on device 3 and never make that the current device.
    """
    with out_of_sight()():
        found = {
            parameter.device.index
            for model in forward.attached
            for parameter in model.parameters()
            if parameter.device.type == kind
        }
    return found.pop() if len(found) == 1 else None
