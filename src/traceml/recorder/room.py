"""Notes an allocation that found no room: the phase that was open, the step, the size, even if the script catches it.

Torch lets an observer be attached, not detached: one a process, which is silent when no session listens.
"""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Any, Callable, Final, Optional

from traceml.recorder.accelerator import Accelerator
from traceml.recorder.pen import Pen
from traceml.schema import phases
from traceml.schema.room import OutOfMemory
from traceml.wire import edges

HOOK: Final = "out of memory"
_MAX_TOLD: Final = 100  # a script may probe for its batch size
_MAX_BACK: Final = 512

_listening: Optional[Room] = None
_attached: weakref.WeakSet[Any] = weakref.WeakSet()  # to whose counters: one observer an allocator


class Room:
    """What a session hears of the allocator having no room."""

    def __init__(self, pen: Pen, accelerator: Accelerator, *, rank: int, latest: Callable[[], int]) -> None:
        self._pen, self._accelerator, self._rank, self._latest = pen, accelerator, rank, latest
        self._num_told = 0
        self._waiting: list[OutOfMemory] = []

    def start(self) -> None:
        """Listens from now on."""
        global _listening  # noqa: PLW0603  # one a process
        counters = self._accelerator.counters
        if counters in _attached or self._accelerator.watch_room(_no_room):
            _attached.add(counters)
            _listening = self
            self._pen.guard.register(HOOK, self.stop)

    def stop(self) -> None:
        """Listens no more; what another thread heard is told."""
        global _listening  # noqa: PLW0603
        if _listening is self:
            _listening = None
        self.tell()

    def tell(self) -> None:
        """What came in another thread, an autograd thread for example, waits for this one: a ring has one writer."""
        if self._pen.owner is not None:
            while self._waiting:
                self._pen.ring.send(self._waiting.pop(0))

    def no_room(self, device: int, requested_bytes: int, capacity_bytes: int, free_bytes: int) -> None:
        """The allocator calls, before it raises."""
        pen = self._pen
        if pen.owner is None or self._num_told >= _MAX_TOLD:
            return
        self._num_told += 1
        step = pen.num_steps + bool(pen.in_step or pen.infers)
        phase = open_phase(pen, self._latest())
        found = OutOfMemory(
            self._rank, pen.clock_ns(), step, phase, device, requested_bytes, capacity_bytes, free_bytes
        )
        self._waiting.append(found)
        if get_ident() == pen.owner:
            self.tell()


def _no_room(*told: Any) -> None:
    room = _listening
    if room is not None:
        try:
            room.no_room(*told)
        except BaseException as error:  # noqa: BLE001  # guard
            room._pen.guard.fault(HOOK, error)  # noqa: SLF001  # one file


def open_phase(pen: Pen, latest: int) -> str:
    """The innermost phase that is open behind the edge with index `latest`, read back from the ring."""
    num_closed = 0
    for j in range(latest, max(-1, latest - _MAX_BACK), -1):
        code = pen.codes[j & pen.mask]
        if code in (edges.STEP_BEGIN, edges.STEP_END, edges.STEP_FAILED, edges.UNWOUND):
            break
        if code == edges.CLOSE_NO_BATCH or code - edges.CLOSE in edges.OPENS:
            num_closed += 1
        elif code in edges.OPENS:
            if not num_closed:
                return _name(pen, code)
            num_closed -= 1
    return phases.IN_STEP if pen.in_step else phases.BETWEEN_STEPS


def _name(pen: Pen, code: int) -> str:
    if code in edges.PHASE_OF:
        return edges.PHASE_OF[code]
    return next((phases.REGION_PREFIX + name for name, known in pen.regions.items() if known == code), phases.IN_STEP)
