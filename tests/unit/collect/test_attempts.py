"""Shows which deaths of several ranks are one Ctrl-C, and which are those of a first rank and of the others by it."""

from __future__ import annotations

import pytest

from traceml.collect.attempts import events_of, were_interrupted
from traceml.schema import phases
from traceml.schema.attempts import RankDeath
from traceml.schema.stalls import DEATH, FIRST_DEATH

BY_KEY, BY_SIGNAL = "failed with KeyboardInterrupt", "killed by SIGINT"
TORN_DOWN = "killed by SIGTERM"


def deaths(*hows: str, phase: str = phases.INPUT) -> list[RankDeath]:
    return [RankDeath(rank, 61, phase, rank, how) for rank, how in enumerate(hows)]


@pytest.mark.parametrize(
    ("hows", "is_one"),
    [
        ((BY_KEY, BY_KEY, BY_KEY), True),
        ((BY_KEY, BY_SIGNAL), True),
        ((BY_KEY, BY_KEY, TORN_DOWN), True),
        ((BY_KEY, TORN_DOWN), False),  # one rank alone may have got it
        ((BY_KEY, BY_KEY, "failed with ValueError"), False),
        ((BY_KEY, BY_KEY, "killed by SIGKILL"), False),
        (("killed by SIGKILL", TORN_DOWN), False),
        ((), False),
    ],
)
def test_a_ctrl_c_that_came_to_all_is_told_from_what_one_rank_died_of(hows: tuple[str, ...], is_one: bool) -> None:
    assert were_interrupted(deaths(*hows)) == is_one


def test_who_failed_in_its_wait_because_of_a_ctrl_c_to_the_others_failed_by_it() -> None:
    waited = deaths("failed with RuntimeError", phase=phases.SYNC)

    assert were_interrupted([*deaths(BY_KEY, BY_KEY), *waited])


def test_of_ranks_that_were_interrupted_none_is_the_first_to_die() -> None:
    interrupted = events_of(deaths(BY_KEY, BY_KEY), [], memory_of=lambda _: None)
    died = events_of(deaths("failed with ValueError", TORN_DOWN), [], memory_of=lambda _: None)

    assert [event.kind for event in interrupted] == [DEATH, DEATH]
    assert [event.kind for event in died] == [FIRST_DEATH, DEATH]
