"""Shows which of many ways to stand still is a hang, which is a wait, and which is nobody's business."""

from __future__ import annotations

import pytest

from traceml.analysis.stalls import Periods, alone, stall_of
from traceml.schema import phases
from traceml.schema.records import LiveSlot, StepRecord
from traceml.schema.stalls import ASLEEP, BUSY, DELEGATES, ENDED, GONE, HANG, WAIT, Stall

S = 1_000_000_000
NOW_S = 1000.0


def slot(
    rank: int, phase: str, for_s: float, *, step: int = 1204, halted: str = "", by_script: bool = False
) -> LiveSlot:
    now_ns = round(NOW_S * S)
    since_ns = now_ns - round(for_s * S)
    return LiveSlot(rank, step, phase, since_ns, now_ns, alive=True, halted=halted, by_script=by_script)


def seen(
    *slots: LiveSlot,
    p99_s: float = 0.1,
    does: dict[int, str] | None = None,
    world: int = 0,
    paused_s: float = 0.0,
    left_s: float | None = None,
) -> Stall | None:
    return stall_of(
        slots,
        now_ns=round(NOW_S * S),
        p99_ns=round(p99_s * S),
        does=does or {},
        world_size=world or len(slots),
        paused_ns={0: round(paused_s * S)},
        left_ns={} if left_s is None else {1: round((NOW_S - left_s) * S)},
    )


def waiting(*ranks: int, for_s: float = 41.0, step: int = 1204, by_script: bool = False) -> list[LiveSlot]:
    return [slot(rank, phases.SYNC, for_s, step=step, by_script=by_script) for rank in ranks]


def test_a_rank_that_does_not_come_while_the_others_wait_is_a_hang_and_named() -> None:
    found = seen(*waiting(0, 1, 3), slot(2, phases.INPUT, 41.5), does={2: ASLEEP})

    assert found is not None
    assert found[:4] == (HANG, 2, 1204, phases.INPUT)
    assert found.text == "rank 2 in input, asleep; ranks 0, 1 and 3 wait"
    assert found.since_ns == round((NOW_S - 41.5) * S)


@pytest.mark.parametrize(
    ("for_s", "p99_s", "hangs"), [(4.9, 0.1, False), (5.1, 0.1, True), (5.1, 0.5, False), (10.1, 0.5, True)]
)
def test_it_takes_five_seconds_and_twenty_of_the_longest_periods(for_s: float, p99_s: float, hangs: bool) -> None:
    found = seen(*waiting(0, for_s=for_s), slot(1, phases.INPUT, for_s), p99_s=p99_s)

    assert (found is not None and found.kind == HANG) == hangs


@pytest.mark.parametrize("phase", [phases.EVAL, phases.CHECKPOINT, phases.COMPILE])
def test_an_evaluation_a_checkpoint_and_a_compilation_may_take_ten_times_as_long(phase: str) -> None:
    def kind(for_s: float) -> str | None:
        found = seen(*waiting(1, 2, 3, for_s=for_s), slot(0, phase, for_s))
        return None if found is None else found.kind

    assert [kind(4), kind(12), kind(49), kind(51)] == [None, WAIT, WAIT, HANG]


def test_a_rank_that_works_between_its_steps_is_waited_for_and_one_that_sleeps_there_hangs() -> None:
    slots = [*waiting(1, 2), slot(0, phases.BETWEEN_STEPS, 12)]

    busy, asleep = seen(*slots, does={0: BUSY}), seen(*slots, does={0: ASLEEP})
    assert busy is not None
    assert asleep is not None
    assert (busy.kind, busy.text) == (WAIT, "rank 0 in between steps, busy; ranks 1 and 2 wait")
    assert asleep.kind == HANG


@pytest.mark.parametrize("phase", [phases.INPUT, phases.BETWEEN_STEPS, phases.REGION_PREFIX + "validate"])
def test_a_rank_that_works_where_an_evaluation_may_be_has_ten_times_as_long_and_one_that_sleeps_has_not(
    phase: str,
) -> None:
    def kind(for_s: float, what: str) -> str | None:
        found = seen(*waiting(1, 2, for_s=for_s), slot(0, phase, for_s), does={0: what})
        return None if found is None else found.kind

    assert [kind(4, BUSY), kind(12, BUSY), kind(51, BUSY)] == [None, WAIT, HANG]
    assert [kind(4, ASLEEP), kind(5.1, ASLEEP)] == [None, HANG]


@pytest.mark.parametrize(
    ("does", "phase", "is_barrier", "kinds"),
    [
        (DELEGATES, phases.BETWEEN_STEPS, True, [None, WAIT, WAIT, HANG]),
        (DELEGATES, phases.BETWEEN_STEPS, False, [None, HANG, HANG, HANG]),
        (DELEGATES, phases.INPUT, True, [None, HANG, HANG, HANG]),
        (ASLEEP, phases.BETWEEN_STEPS, True, [None, HANG, HANG, HANG]),
    ],
)
def test_a_rank_whose_own_process_runs_between_steps_has_ten_times_as_long_where_a_barrier_waits_for_it(
    does: str, phase: str, is_barrier: bool, kinds: list[str | None]
) -> None:
    def kind(for_s: float) -> str | None:
        others = waiting(1, 2, for_s=for_s, by_script=is_barrier)
        found = seen(*others, slot(0, phase, for_s), does={0: does})
        return None if found is None else found.kind

    assert [kind(for_s) for for_s in (4, 5.1, 49, 51)] == kinds


@pytest.mark.parametrize(
    ("phase", "is_barrier", "kinds"),
    [
        (phases.BETWEEN_STEPS, True, [WAIT, WAIT, HANG]),
        (phases.BETWEEN_STEPS, False, [HANG, HANG, HANG]),
        (phases.FORWARD, True, [HANG, HANG, HANG]),
    ],
)
def test_a_pause_of_its_own_that_a_rank_has_come_back_from_is_exceeded_by_far_before_the_next_is_a_hang(
    phase: str, is_barrier: bool, kinds: list[str]
) -> None:
    def kind(for_s: float) -> str | None:
        others = waiting(1, for_s=for_s, by_script=is_barrier)
        found = seen(*others, slot(0, phase, for_s), does={0: ASLEEP}, paused_s=9)
        return None if found is None else found.kind

    assert [kind(for_s) for for_s in (6, 17, 19)] == kinds


@pytest.mark.parametrize("phase", [phases.FORWARD, phases.BACKWARD, phases.OPTIMIZER, phases.IN_STEP, phases.H2D])
def test_a_rank_that_spins_in_its_own_training_hangs_as_one_that_sleeps(phase: str) -> None:
    found = seen(*waiting(1), slot(0, phase, 6), does={0: BUSY})

    assert found is not None
    assert found.kind == HANG


def test_the_first_steps_may_take_long() -> None:
    slots = [*waiting(1, for_s=12, step=8), slot(0, phases.FORWARD, 12, step=8)]

    found = seen(*slots)
    assert found is not None
    assert found.kind == WAIT


def test_a_rank_that_goes_on_from_phase_to_phase_while_the_others_wait_is_waited_for() -> None:
    found = seen(*waiting(1, 2, for_s=30), slot(0, phases.EVAL, 0.1))

    assert found is not None
    assert (found.kind, found.since_ns) == (WAIT, round((NOW_S - 30) * S))


def test_a_rank_that_is_stopped_is_no_alarm() -> None:
    found = seen(*waiting(1), slot(0, phases.FORWARD, 60, halted="stopped"))

    assert found is not None
    assert (found.kind, found.text) == (WAIT, "rank 0 in forward, stopped; rank 1 waits")


def test_all_ranks_outside_of_a_wait_are_a_pause_of_the_script() -> None:
    assert seen(*[slot(rank, phases.BETWEEN_STEPS, 300) for rank in range(4)]) is None
    assert seen(slot(0, phases.INPUT, 300), slot(1, phases.CHECKPOINT, 300)) is None


def test_one_rank_alone_never_hangs() -> None:
    assert seen(slot(0, phases.INPUT, 3000)) is None
    assert seen(slot(0, phases.SYNC, 3000)) is None


def test_all_in_a_wait_hang_by_their_steps_the_network_or_a_rank_elsewhere() -> None:
    apart = seen(*waiting(0, 1, step=90), *waiting(2, step=91))
    together, elsewhere = seen(*waiting(0, 1)), seen(*waiting(0, 1), world=4)

    assert apart is not None
    assert together is not None
    assert elsewhere is not None
    assert "at different steps (90, 91)" in apart.text
    assert "at the same step" in together.text
    assert "not heard here" in elsewhere.text
    assert {apart.kind, together.kind, elsewhere.kind} == {HANG}
    assert seen(*waiting(0, 1, for_s=3)) is None


@pytest.mark.parametrize(
    ("does", "text"),
    [(ENDED, "rank 1 has ended its training; rank 0 waits"), (GONE, "rank 1 died in backward; rank 0 waits")],
)
def test_who_waits_for_a_rank_that_has_left_waits_for_ever(does: str, text: str) -> None:
    found = seen(*waiting(0, for_s=6), slot(1, phases.BACKWARD, 6.1), does={1: does})

    assert found is not None
    assert (found.kind, found.rank, found.text) == (HANG, 1, text)


def test_the_time_that_a_rank_is_waited_for_begins_anew_with_its_death() -> None:
    slots = [*waiting(0, for_s=30), slot(1, phases.INPUT, 31)]

    just, long = (seen(*slots, does={1: GONE}, left_s=for_s) for for_s in (1, 6))
    assert just is None
    assert long is not None
    assert (long.kind, long.since_ns) == (HANG, round((NOW_S - 6) * S))


def test_a_rank_that_is_stopped_while_the_others_are_torn_down_is_still_told_of() -> None:
    slots = [slot(0, phases.SYNC, 50), slot(1, phases.FORWARD, 60, halted="stopped"), slot(2, phases.SYNC, 50)]

    found = alone(slots, does={0: GONE, 2: GONE}, before=None)
    assert found is not None
    assert (found.kind, found.rank, found.text) == (WAIT, 1, "rank 1 in forward, stopped; ranks 0 and 2 are gone")
    first = alone(slots, does={0: GONE}, before=None)
    assert first is not None
    assert first.text == "rank 1 in forward, stopped; rank 0 is gone"
    assert alone(slots, does={}, before=None) is None


def test_a_rank_that_hangs_while_the_others_are_torn_down_hangs_until_it_goes_on() -> None:
    sleeps, does = slot(1, phases.INPUT, 60), {0: GONE, 1: ASLEEP}
    before = seen(*waiting(0), sleeps, does={1: ASLEEP})

    found = alone([*waiting(0), sleeps], does=does, before=before)
    assert found is not None
    assert (found.kind, found.text) == (HANG, "rank 1 in input, asleep; rank 0 is gone")
    assert alone([*waiting(0), slot(1, phases.FORWARD, 0.1)], does=does, before=before) is None
    assert alone([*waiting(0), sleeps], does=does, before=None) is None


def test_evaluations_checkpoints_and_compilation_do_not_make_the_limit_longer() -> None:
    def step(number: int, period_ms: int, phase: str = phases.FORWARD) -> StepRecord:
        ns = period_ms * 1_000_000
        times = tuple(ns if name == phase else None for name in phases.PHASES)
        return StepRecord(0, number, 0, ns, times)

    periods = Periods()
    assert periods.p99_ns() == 0
    periods.feed([step(number, 10) for number in range(200)])
    periods.feed(
        [step(201, 60_000, phases.EVAL), step(202, 60_000, phases.CHECKPOINT), step(203, 90_000, phases.COMPILE)]
    )
    assert periods.p99_ns() == 10_000_000
    periods.feed([step(number, 30) for number in range(3000)])
    assert periods.p99_ns() == 30_000_000
