"""Holds the division of a step on the device's clock to its sum, whatever edges and times there are."""

from __future__ import annotations

from typing import Optional

from hypothesis import given
from hypothesis import strategies as st

from traceml.analysis.device import Mark, Span, divided
from traceml.analysis.division import BETWEEN, IN_STEP
from traceml.wire import edges

OPENS = (*edges.PHASE_OF, edges.FIRST_REGION, edges.FIRST_REGION + 15)
CODES = (*OPENS, *(code + edges.CLOSE for code in OPENS), edges.CLOSE_NO_BATCH, edges.STEP_BEGIN, edges.UNWOUND)

waits = st.integers(0, 3_000_000)
device_times = st.one_of(st.none(), st.integers(-5_000_000, 60_000_000))
marks = st.lists(st.tuples(st.sampled_from(CODES), waits, device_times, st.integers(0, 3)), max_size=40)


def span_of(found: list[tuple[int, int, Optional[int], int]], end_ns: int, *, infers: bool) -> Span:
    host_ns, made = 0, []
    for code, wait_ns, device_ns, serial in found:
        host_ns += wait_ns
        made.append(Mark(code, host_ns, device_ns, serial))
    start = Mark(edges.STEP_END, 0, 0)
    return Span(start, Mark(edges.STEP_END, host_ns + 1_000, end_ns), made, [BETWEEN], infers)


@given(marks, st.integers(0, 50_000_000), st.booleans())
def test_the_parts_add_up_to_the_devices_period_exactly(
    found: list[tuple[int, int, Optional[int], int]], end_ns: int, infers: bool
) -> None:
    draft = divided(span_of(found, end_ns, infers=infers))

    assert draft is not None
    assert sum(draft.acc) + sum(draft.waits.values()) == draft.period_ns == end_ns
    assert min((*draft.acc, *draft.waits.values())) >= 0


def test_a_clock_that_runs_backwards_gives_nothing() -> None:
    assert divided(span_of([], -1, infers=False)) is None


def test_a_step_without_an_event_inside_is_the_rest_between_the_steps() -> None:
    draft = divided(span_of([(edges.STEP_BEGIN, 900, None, 0)], 5_000, infers=False))

    assert draft is not None
    assert draft.acc[BETWEEN] + draft.acc[IN_STEP] == 5_000
