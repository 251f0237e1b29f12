"""Tests how steady steps are cut into chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import block_of, facts_of_steps, numbered, rank_state, step_ms


@given(st.integers(0, 700))
def test_there_are_at_most_64_chunks_that_hold_every_steady_step_once(num_steps: int) -> None:
    rank = facts_of_steps([step_ms(forward=10)] * num_steps).ranks[0]

    assert len(rank.chunks) == min(num_steps, 64)
    assert sum(chunk.num_steps for chunk in rank.chunks) == num_steps


def test_chunks_are_of_about_the_same_size() -> None:
    rank = facts_of_steps([step_ms(forward=10)] * 1000).ranks[0]

    assert {chunk.num_steps for chunk in rank.chunks} == {15, 16}


def test_chunks_follow_one_another() -> None:
    chunks = facts_of_steps([step_ms(forward=10)] * 200).ranks[0].chunks

    assert chunks[0].first_step == 1
    assert chunks[-1].last_step == 200
    assert all(before.last_step + 1 == after.first_step for before, after in zip(chunks, chunks[1:]))


def test_the_chunks_of_blocks_and_raw_steps_keep_the_sums() -> None:
    steps = numbered([step_ms(input=1 + i % 4, forward=10, regions={0: 2}) for i in range(900)])
    blocks = [block_of(steps[at : at + 50], regions={0: "a"}) for at in range(100, 700, 50)]

    rank = facts_of_steps([*steps[:100], *blocks, *steps[700:]], state=rank_state(regions={0: "a"})).ranks[0]

    assert len(rank.chunks) <= 64
    for phase in ("input", "forward", "region:a"):
        summed = sum(chunk.phase_mean_ns[phase] * chunk.num_steps for chunk in rank.chunks)
        assert summed == pytest.approx(rank.phase_ns(phase))


def test_a_chunk_has_the_median_beside_the_mean() -> None:
    steps = [step_ms(forward=10)] * 100 + [step_ms(forward=10, between_steps=990)] + [step_ms(forward=10)] * 539

    chunk = next(c for c in facts_of_steps(steps).ranks[0].chunks if c.first_step <= 101 <= c.last_step)

    assert chunk.period_median_ns == 10_000_000
    assert chunk.period_mean_ns == pytest.approx(109_000_000)


def test_a_phase_that_no_step_of_a_chunk_had_is_not_in_it() -> None:
    steps = [step_ms(forward=10)] * 63 + [step_ms(forward=10, checkpoint=5)]

    chunks = facts_of_steps(steps).ranks[0].chunks

    assert [("checkpoint" in chunk.phase_mean_ns) for chunk in chunks] == [False] * 63 + [True]
