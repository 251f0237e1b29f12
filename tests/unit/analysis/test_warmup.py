"""Tests where the warm-up ends, by its door `facts_of`."""

from __future__ import annotations

import pytest

from tests.builders import Piece, block_of, facts_of_steps, numbered, rank_state, step_ms

FAST, SLOW = step_ms(forward=10), step_ms(forward=500)


def test_five_slow_first_steps_are_warm_up() -> None:
    rank = facts_of_steps([SLOW] * 5 + [FAST] * 95).ranks[0]

    assert (rank.num_warmup, rank.num_steady, rank.warmup_ns) == (5, 95, 2_500_000_000)
    assert rank.period.maximum == 10_000_000


def test_a_run_that_is_even_from_the_start_has_no_warm_up() -> None:
    rank = facts_of_steps([FAST] * 40).ranks[0]

    assert (rank.num_warmup, rank.num_steady) == (0, 40)


def test_a_step_of_20_percent_more_is_steady_and_one_of_21_is_not() -> None:
    at_limit = facts_of_steps([step_ms(forward=12)] + [FAST] * 39)
    above = facts_of_steps([step_ms(forward=12.1)] + [FAST] * 39)

    assert [facts.ranks[0].num_warmup for facts in (at_limit, above)] == [0, 1]


def test_one_fast_step_among_slow_ones_does_not_end_the_warm_up() -> None:
    rank = facts_of_steps([SLOW, FAST, *[SLOW] * 6, *[FAST] * 92]).ranks[0]

    assert rank.num_warmup == 8


def test_at_most_a_quarter_of_the_run_is_warm_up() -> None:
    rank = facts_of_steps([step_ms(forward=max(10, 2000 * 0.9**at)) for at in range(100)]).ranks[0]

    assert (rank.num_warmup, rank.num_steady) == (25, 75)


@pytest.mark.parametrize("num_slow", [33, 50])
def test_a_part_of_the_run_that_is_slow_throughout_is_no_warm_up(num_slow: int) -> None:
    cold = [step_ms(forward=1500)] * 3
    rank = facts_of_steps([*cold, *[SLOW] * num_slow, *[FAST] * (97 - num_slow)]).ranks[0]

    assert (rank.num_warmup, rank.num_steady) == (3, 97)


def test_a_run_that_becomes_slower_on_the_way_keeps_its_fast_first_steps() -> None:
    rank = facts_of_steps([FAST] * 50 + [SLOW] * 50).ranks[0]

    assert rank.num_warmup == 0


def test_waits_in_every_third_step_are_no_warm_up() -> None:
    rank = facts_of_steps([step_ms(input=0, forward=10), FAST, step_ms(input=40, forward=10)] * 30).ranks[0]

    assert rank.num_warmup == 0


def test_a_step_with_compilation_is_warm_up_wherever_it_is() -> None:
    rank = facts_of_steps([FAST] * 30 + [step_ms(forward=10, compile=300)] + [FAST] * 30).ranks[0]

    assert (rank.num_warmup, rank.num_steady) == (1, 60)


def test_a_failed_step_is_not_warm_up() -> None:
    rank = facts_of_steps([step_ms(forward=500, failed_in="forward")] + [SLOW] * 2 + [FAST] * 40).ranks[0]

    assert (rank.num_failed, rank.num_warmup, rank.num_steady) == (1, 2, 40)


def test_a_range_from_the_middle_of_the_run_has_no_warm_up() -> None:
    steps = numbered([SLOW] * 5 + [FAST] * 95, first=500)
    block = block_of(numbered([FAST] * 10, first=600))

    rank = facts_of_steps([*steps, block], state=rank_state(first_step=1)).ranks[0]

    assert rank.num_warmup == 0


def test_a_short_run_has_no_warm_up() -> None:
    rank = facts_of_steps([SLOW, FAST, FAST]).ranks[0]

    assert (rank.num_warmup, rank.num_steady) == (0, 3)


def test_a_warm_up_that_reaches_into_blocks_counts_them_in_and_says_so() -> None:
    steps = numbered([SLOW] * 300 + [FAST] * 900)
    pieces: list[Piece] = [*steps[:64], block_of(steps[64:600]), block_of(steps[600:])]

    facts = facts_of_steps(pieces)

    assert facts.ranks[0].num_warmup == 64
    assert facts.ranks[0].num_steady == 1136
    assert "beyond step 64" in facts.notes[0]


def test_the_warm_up_of_a_long_run_is_found_in_its_raw_head() -> None:
    steps = numbered([SLOW] * 7 + [FAST] * 1193)
    pieces: list[Piece] = [*steps[:64], block_of(steps[64:600]), *steps[600:]]

    facts = facts_of_steps(pieces)

    assert facts.ranks[0].num_warmup == 7
    assert facts.notes == ()
