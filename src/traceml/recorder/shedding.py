"""Gives up optional signals, in this order, where tracing costs more than its budget; what is left stays true.

Collections first: their time goes to the phase around them. Then looks into batches (samples and tokens), the
allocator's readings, and the device's events, without which the host's clock is left. Steps and phases never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Mapping

from traceml.recorder import clock, memory, peaks
from traceml.recorder.bill import BATCHES
from traceml.recorder.hooks import collections
from traceml.schema import phases

if TYPE_CHECKING:
    from traceml.recorder.pen import Pen


def sheds_of(pen: Pen) -> Mapping[str, Callable[[str], None]]:
    """How each optional signal is given up, in the order in which they are; each takes the reason to be told."""

    def collections_gone(why: str) -> None:
        pen.guard.remove(collections.HOOK)
        pen.watched = tuple(phase for phase in pen.watched if phase != phases.GC)
        pen.tell(unseen={phases.GC: why})

    def batches_gone(_why: str) -> None:
        if pen.loaders is not None:
            pen.loaders.stop_looking()

    def memory_gone(_why: str) -> None:
        pen.guard.remove(memory.HOOK)
        pen.guard.remove(peaks.HOOK)

    def events_gone(why: str) -> None:
        pen.guard.remove(clock.HOOK)
        pen.clock_used, pen.clock_note = "host", f"events {why}"
        pen.tell()

    return {
        collections.HOOK: collections_gone,
        BATCHES: batches_gone,
        memory.HOOK: memory_gone,
        clock.HOOK: events_gone,
    }
