"""Shows that a slow step is told of once, by whom it was slow for, or with the hang that it lay in."""

from __future__ import annotations

import pytest

from traceml.report.once import once
from traceml.schema.records import Event
from traceml.schema.stalls import HANG, WAIT

S = 1_000_000_000


def slow(rank: int, text: str, *, step: int = 101, end_s: float = 20.0, took_s: float = 9.0) -> Event:
    return Event("slow step", rank, step, round(end_s * S), round(took_s * S), text=text)


def test_a_step_that_several_ranks_saw_as_slow_is_that_of_the_one_that_did_not_wait() -> None:
    cause = slow(1, "between steps")
    events = [slow(0, "waiting for ranks", took_s=9.1), cause, slow(2, "waiting for ranks")]

    assert once(events) == [cause]


def test_of_ranks_that_all_waited_it_is_the_longest() -> None:
    longest = slow(2, "waiting for ranks", took_s=9.5)

    assert once([slow(0, "waiting for ranks"), longest]) == [longest]


def test_other_steps_other_times_and_the_same_ranks_own_stay() -> None:
    events = [
        slow(0, "forward"),
        slow(1, "forward", step=140, end_s=90),
        slow(1, "waiting for ranks", end_s=300),  # a group of another pace
        slow(0, "forward", end_s=20.1),
    ]

    assert once(events) == events


@pytest.mark.parametrize("kind", [HANG, WAIT])
def test_a_slow_step_in_a_hang_or_a_wait_is_told_with_it(kind: str) -> None:
    stall = Event(kind, 0, 101, 11 * S, 9 * S, text="rank 0 in between steps; rank 1 waits")
    other = slow(0, "between steps", step=201, end_s=60)

    assert once([slow(0, "between steps"), slow(1, "waiting for ranks"), stall, other]) == [stall, other]


def test_a_slow_step_that_a_hang_only_touches_stays_and_so_does_all_else() -> None:
    stall = Event(HANG, 0, 101, 18 * S, 9 * S)
    events = [slow(0, "forward"), stall, Event("evaluation", 0, 101, 20 * S, 9 * S)]

    assert once(events) == events
