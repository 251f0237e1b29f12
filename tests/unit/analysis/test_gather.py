"""Tests how records become Facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Piece, block_of, facts_of_steps, loader_info, numbered, rank_state, step_ms
from traceml.analysis.gather import RankWindow, facts_of
from traceml.schema.records import Event, Segment

PLAIN = step_ms(input=5, forward=10, backward=20, optimizer=5, num_samples=4)


def test_shares_are_of_the_steady_periods() -> None:
    rank = facts_of_steps([PLAIN] * 40).ranks[0]

    assert rank.share("input") == pytest.approx(5 / 40)
    assert rank.share("backward") == pytest.approx(20 / 40)


@given(st.lists(st.tuples(*[st.integers(0, 10**9)] * 4), min_size=1, max_size=60))
def test_the_shares_of_a_run_add_up_to_one(times: list[tuple[int, int, int, int]]) -> None:
    steps = [
        step_ms(input=a / 1e6, forward=b / 1e6, between_steps=c / 1e6, gc=d / 1e6, regions={0: a / 3e6})
        for a, b, c, d in times
    ]

    rank = facts_of_steps(steps, state=rank_state(regions={0: "augment"})).ranks[0]

    assert sum(spent.total for spent in rank.phases.values()) == rank.total_ns


def test_a_phase_without_a_single_edge_is_missing_and_not_zero() -> None:
    rank = facts_of_steps([step_ms(forward=10)] * 20).ranks[0]

    assert "input" not in rank.phases
    assert rank.phase_ns("input") is None
    assert rank.share("input") is None


@pytest.mark.parametrize("phase", ["eval", "checkpoint", "gc", "in_step", "between_steps"])
def test_a_phase_that_did_not_happen_is_zero(phase: str) -> None:
    rank = facts_of_steps([step_ms(forward=10)] * 20, state=rank_state(watched=("eval", "checkpoint", "gc"))).ranks[0]

    assert rank.phase_ns(phase) == 0
    assert rank.phases[phase].total == 0


@pytest.mark.parametrize("phase", ["eval", "checkpoint", "gc"])
def test_a_phase_whose_hook_is_not_installed_is_missing(phase: str) -> None:
    rank = facts_of_steps([step_ms(forward=10)] * 20, state=rank_state(watched=("forward",))).ranks[0]

    assert phase not in rank.phases
    assert rank.phase_ns(phase) is None


def test_a_fetch_outside_of_the_range_makes_input_zero_in_it() -> None:
    rank = facts_of_steps([step_ms(forward=10)] * 20, state=rank_state(loader=loader_info())).ranks[0]

    assert rank.phase_ns("input") == 0


def test_a_phase_that_only_the_warm_up_had_is_zero() -> None:
    rank = facts_of_steps([step_ms(input=500, forward=10)] + [step_ms(forward=10)] * 39).ranks[0]

    assert rank.num_warmup == 1
    assert rank.phase_ns("input") == 0


def test_failed_steps_are_counted_and_their_time_is_left_out() -> None:
    failed = step_ms(forward=900, failed_in="forward")

    rank = facts_of_steps([PLAIN] * 20 + [failed] + [PLAIN] * 20).ranks[0]

    assert (rank.num_steps, rank.num_failed, rank.num_steady) == (41, 1, 40)
    assert rank.total_ns == 40 * 40_000_000


def test_a_phase_counts_the_steps_that_had_an_edge_of_it() -> None:
    steps = ([step_ms(forward=10)] * 9 + [step_ms(forward=10, eval=100)]) * 5

    rank = facts_of_steps(steps).ranks[0]

    assert rank.phases["eval"].count == 5
    assert rank.num_without("eval") == 45
    assert rank.mean_ns("eval") == pytest.approx(10_000_000)


def test_blocks_and_raw_steps_give_the_same_facts() -> None:
    times = [(1 + i % 7, 5 + i % 3, 2 + i % 5) for i in range(400)]
    steps = numbered([step_ms(input=a, forward=b, in_step=c, num_samples=2, regions={3: a}) for a, b, c in times])
    state = rank_state(regions={3: "augment"})
    mixed: list[Piece] = [*steps[:64], block_of(steps[64:200], regions={3: "augment"}), *steps[200:]]

    raw, coarse = facts_of_steps(steps, state=state).ranks[0], facts_of_steps(mixed, state=state).ranks[0]

    assert coarse.period == raw.period
    assert coarse.phases == raw.phases
    assert (coarse.num_steps, coarse.num_steady, coarse.num_samples) == (400, 400, 800)


def test_failed_steps_of_a_block_are_counted() -> None:
    steps = numbered([PLAIN] * 50 + [step_ms(forward=1, failed_in="forward")] + [PLAIN] * 50)

    rank = facts_of_steps([*steps[:20], block_of(steps[20:])]).ranks[0]

    assert (rank.num_steps, rank.num_failed, rank.num_steady) == (101, 1, 100)


def test_a_region_is_known_by_the_users_name() -> None:
    rank = facts_of_steps([step_ms(forward=5, regions={2: 5})] * 10, state=rank_state(regions={2: "augment"})).ranks[0]

    assert rank.share("region:augment") == pytest.approx(0.5)


def test_a_region_whose_name_was_lost_keeps_its_number() -> None:
    rank = facts_of_steps([step_ms(forward=5, regions={2: 5})] * 10).ranks[0]

    assert "region:2" in rank.phases


def test_the_start_of_epochs_is_kept_beside_the_input_it_is_part_of() -> None:
    rank = facts_of_steps(([step_ms(input=0.1, forward=5)] * 19 + [step_ms(input=30, epoch_start=29, forward=5)]) * 3)

    assert rank.ranks[0].epoch_start.count == 3
    assert rank.ranks[0].epoch_start.total == 87_000_000


def test_throughput_counts_steady_steps_and_the_wall_counts_all() -> None:
    rank = facts_of_steps([step_ms(forward=900, num_samples=4)] * 2 + [PLAIN] * 38).ranks[0]

    assert (rank.num_samples, rank.all_samples) == (38 * 4, 40 * 4)
    assert (rank.num_micro_batches, rank.all_micro_batches) == (38, 40)


def test_samples_that_nobody_counted_are_not_zero() -> None:
    rank = facts_of_steps([step_ms(forward=9)] * 20).ranks[0]

    assert rank.num_samples is None


def test_the_training_loader_is_found_among_several() -> None:
    state = rank_state(loader=loader_info(4, number=7))

    assert facts_of_steps([PLAIN], state=state).loader == loader_info(4, number=7)


def test_without_a_training_loader_none_is_named() -> None:
    assert facts_of_steps([PLAIN]).loader is None


def test_startup_and_tail_belong_to_their_rank() -> None:
    empty = (None,) * 12
    segments = [
        Segment(rank=1, kind="startup", start_ns=0, duration_ns=7, phase_ns=empty),
        Segment(rank=0, kind="startup", start_ns=0, duration_ns=5, phase_ns=empty),
    ]

    rank = facts_of_steps([PLAIN] * 8, segments=segments).ranks[0]

    assert (rank.startup_ns, rank.tail_ns) == (5, None)


def test_the_range_is_that_of_all_ranks() -> None:
    first, second = numbered([PLAIN] * 10, first=3), numbered([PLAIN] * 10, first=5)
    windows = [RankWindow(rank_state(rank=0), first), RankWindow(rank_state(rank=1), second)]

    facts = facts_of(windows, world_size=2)

    assert (facts.first_step, facts.last_step) == (3, 14)


def test_without_steps_there_are_facts_all_the_same() -> None:
    facts = facts_of([])

    assert (facts.ranks, facts.first_step, facts.median_rank) == ((), None, None)


def test_a_rank_that_never_finished_a_step_has_nothing_steady() -> None:
    rank = facts_of_steps([]).ranks[0]

    assert (rank.num_steps, rank.num_steady, rank.typical_ns, rank.chunks) == (0, 0, None, ())


def test_events_are_handed_on() -> None:
    event = Event(kind="checkpoint", rank=0, step=3, at_ns=9)

    assert facts_of_steps([PLAIN], events=[event]).events == (event,)
