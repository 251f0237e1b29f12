"""Tests which share of the time a rank is said to have waited for a core."""

from __future__ import annotations

from typing import Sequence

import pytest

from tests.builders import Piece, block_of, facts_of_steps, numbered, step_ms
from traceml.analysis.core_waits import core_wait_share
from traceml.schema.records import ProcessSample

MS = 1_000_000
STEPS = numbered([step_ms(forward=10)] * 100)  # steady from 0 to 1,000 ms


def share(*samples: tuple[int, int | None], rank: int = 0, steps: Sequence[Piece] = STEPS) -> float | None:
    """The share of 100 steps of 10 ms with these samples: ms, and the ms waited until then."""
    processes = [
        ProcessSample(rank, at * MS, run_delay_ns=None if waited is None else waited * MS) for at, waited in samples
    ]
    return facts_of_steps(steps, processes=processes).ranks[0].core_wait_share


def test_the_share_is_that_of_the_steady_part_where_it_holds_two_samples() -> None:
    found = share((0, 0), (100, 20), (600, 120), (1_000, 220), (5_000, 4_220))

    assert found == pytest.approx(0.22)


def test_with_one_sample_in_the_steady_part_all_of_the_run_count() -> None:
    assert share((900, 90), (1_500, 390)) == pytest.approx(0.5)


def test_a_single_sample_counts_from_the_processes_start() -> None:
    assert share((2_000, 500)) == pytest.approx(0.25)


def test_a_single_sample_of_a_later_run_in_the_process_counts_from_that_runs_start() -> None:
    of_run = ProcessSample(0, 1_000 * MS, run_delay_ns=700 * MS)

    assert core_wait_share([ProcessSample(0, 2_000 * MS, run_delay_ns=710 * MS)], steady_ns=None, start=of_run) == 0.01


def test_the_share_is_known_of_blocks_too() -> None:
    steps: list[Piece] = [block_of(STEPS[:64]), *STEPS[64:]]

    assert share((0, 0), (500, 100), (9_000, 9_000), steps=steps) == pytest.approx(0.2)


def test_without_samples_or_where_the_system_does_not_tell_it_is_unknown() -> None:
    assert share() is None
    assert share((100, None), (900, None)) is None


def test_another_ranks_samples_say_nothing() -> None:
    assert share((0, 0), (900, 800), rank=1) is None


def test_a_counter_that_falls_is_another_processes_and_not_counted_back() -> None:
    assert share((0, 500), (100, 520), (200, 0), (300, 40)) == pytest.approx(0.3)


def test_a_wait_longer_than_the_time_is_all_of_it() -> None:
    assert share((0, 0), (500, 510)) == 1.0
