"""Says how a run stands at this moment, read from its rings and the newest samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

from traceml.schema.current import Current

if TYPE_CHECKING:
    from traceml.collect.life import Life
    from traceml.collect.stalling import Stalling
    from traceml.collect.tail import RingTail
    from traceml.schema.records import LiveSlot


def slots_of(ranks: Sequence[RingTail], life: Life, *, now_ns: int) -> list[LiveSlot]:
    """What each rank does now."""
    return [tail.live(now_ns, alive=not life.is_gone(tail.pid)) for tail in ranks]


def current_of(
    ranks: Sequence[RingTail], life: Life, stalling: Stalling, sampled: Mapping[str, Any], *, now_ns: int
) -> Current:
    """The moment; `sampled` is the newest round of samples."""
    slots = stalling.marked(slots_of(ranks, life, now_ns=now_ns))
    hosts, devices = sampled.get("host", ()), sampled.get("devices", ())
    return Current(tuple(slots), tuple(tail.state for tail in ranks), hosts[-1] if hosts else None, tuple(devices))
