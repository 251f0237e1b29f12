"""Says what happened beside the steps: evaluations, checkpoints, failed steps, folded and the costliest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Sequence

from traceml.schema import stalls, units
from traceml.schema.records import HALTED
from traceml.views.text.columns import clean
from traceml.views.text.words import total

if TYPE_CHECKING:
    from traceml.report.contract import EventInfo

FAILED: Final = "failed step"  # the kind of event
NO_ROOM: Final = "out of memory"  # likewise
#: What a kind is called when it happened once, where that is not its own name ...
ONE: Final = {HALTED: "stop", "given up": "signal given up", "now eager": "fall back to eager"}
#: ... and when it happened more often. A kind that is not here is said to have come so many times.
MANY: Final = {
    "evaluation": "evaluations",
    "checkpoint": "checkpoints",
    "epoch start": "epoch starts",
    "garbage collection": "garbage collections",
    FAILED: "failed steps",
    "slow step": "slow steps",
    HALTED: "stops",
    "given up": "signals given up",
    "wait": "waits",
    "now eager": "falls back to eager",
    "recompilation": "recompilations",
    NO_ROOM: "allocations without memory",
    stalls.HANG: "hangs",
    stalls.WAIT: "waits for a rank",
    stalls.FIRST_DEATH: "first deaths",
    stalls.DEATH: "further deaths",
}
_REASONS: Final = {"stopped": "", "traced": "in a debugger", "stopped and traced": "some in a debugger"}  # of a halt


def of_any_rank(events: Sequence[EventInfo]) -> list[EventInfo]:
    """Events that differ in their rank alone as one, that of the rank it cost most; no memory, then the costliest."""
    found: dict[tuple[str, str], EventInfo] = {}
    for event in events:
        key = (event.kind, event.text)
        if key not in found or _cost_ms(event) > _cost_ms(found[key]):
            found[key] = event
    return sorted(found.values(), key=lambda event: (event.kind == NO_ROOM, _cost_ms(event)), reverse=True)


def _cost_ms(event: EventInfo) -> float:
    return (event.ms or 0.0) * event.count


def event_in_words(event: EventInfo) -> str:
    """`5 evaluations (median 6.2 s)`, `checkpoint of 204 ms at step 1,100`, `step 41 failed (ValueError)`."""
    text = clean(_REASONS.get(event.text, event.text) if event.kind == HALTED else event.text)
    text = text and f" ({text})"
    took = "" if event.ms is None else total(event.ms)
    if event.kind == FAILED and event.count == 1:
        return f"step {units.count(event.step)} failed{text}"
    if event.kind == FAILED:
        return f"{units.count(event.count)} {MANY[FAILED]}{text}"
    if event.count == 1:
        one = ONE.get(event.kind) or clean(event.kind)
        return f"{one}{took and f' of {took}'} at step {units.count(event.step)}{text}"
    took = took and f" (median {took})"
    many = MANY.get(event.kind)
    count = units.count(event.count)
    return f"{count} {many}{took}{text}" if many else f"{clean(event.kind)}, {count} times{took}{text}"
