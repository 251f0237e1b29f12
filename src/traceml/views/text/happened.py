"""Says what happened beside the steps: evaluations, checkpoints, failed steps, folded and the costliest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Sequence

from traceml.schema import units
from traceml.views.text.columns import clean
from traceml.views.text.words import plural, total

if TYPE_CHECKING:
    from traceml.report.contract import EventInfo

FAILED: Final = "failed step"  # the kind of event


def of_any_rank(events: Sequence[EventInfo]) -> list[EventInfo]:
    """Events that differ in their rank alone as one, that of the rank it cost most; the costliest first."""
    found: dict[tuple[str, str], EventInfo] = {}
    for event in events:
        key = (event.kind, event.text)
        if key not in found or _cost_ms(event) > _cost_ms(found[key]):
            found[key] = event
    return sorted(found.values(), key=_cost_ms, reverse=True)


def _cost_ms(event: EventInfo) -> float:
    return (event.ms or 0.0) * event.count


def event_in_words(event: EventInfo) -> str:
    """`5 evaluations (median 6.2 s)`, `checkpoint of 204 ms at step 1,100`, `step 41 failed (ValueError)`."""
    kind = clean(event.kind)
    text = f" ({clean(event.text)})" if event.text else ""
    if event.kind == FAILED:
        one = f"step {units.count(event.step)} failed{text}"
        return one if event.count == 1 else f"{plural(event.count, FAILED)}{text}"
    took = "" if event.ms is None else total(event.ms)
    if event.count == 1:
        return f"{kind}{took and f' of {took}'} at step {units.count(event.step)}{text}"
    return f"{units.count(event.count)} {kind}s{took and f' (median {took})'}{text}"
