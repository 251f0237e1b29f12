"""Tells of a slow step once, whoever saw it: its rank, those that waited in it, the watch over who does not come."""

from __future__ import annotations

from typing import Final, Iterable, Sequence

from traceml.schema import phases
from traceml.schema.records import Event
from traceml.schema.stalls import GROWING

_SLOW: Final = "slow step"
_WAITED: Final = phases.label(phases.SYNC)
_MOST: Final = 0.5  # of its time


def once(events: Sequence[Event]) -> list[Event]:
    """The events in their order, without the slow steps that another one tells of.

    Of ranks that saw the same step as slow it is told of the one that did not wait, of several the one it took
    longest. A slow step that lies for the most part in a hang, or in a long wait for a rank, is told with that.
    """
    stalls = [event for event in events if event.kind in GROWING]
    slow = [event for event in events if event.kind == _SLOW]
    kept: dict[int, list[Event]] = {}  # by step
    for event in sorted(slow, key=lambda event: (event.text == _WAITED, -(event.duration_ns or 0))):
        others = [other for other in kept.get(event.step, ()) if other.rank != event.rank]
        if not _is_covered(event, map(_span_of_step, others)) and not _is_covered(event, map(_span_of_stall, stalls)):
            kept.setdefault(event.step, []).append(event)
    told = {id(event) for found in kept.values() for event in found}
    return [event for event in events if event.kind != _SLOW or id(event) in told]


def _is_covered(event: Event, spans: Iterable[tuple[int, int]]) -> bool:
    first, last = _span_of_step(event)
    return any(min(last, end) - max(first, start) > _MOST * (last - first) for start, end in spans)


def _span_of_step(event: Event) -> tuple[int, int]:
    """A step's event has its end."""
    return event.at_ns - (event.duration_ns or 0), event.at_ns


def _span_of_stall(event: Event) -> tuple[int, int]:
    """A stall's has its beginning."""
    return event.at_ns, event.at_ns + (event.duration_ns or 0)
