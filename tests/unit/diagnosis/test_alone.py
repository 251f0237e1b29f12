"""Shows what is said where the ranks lose most of their time to a few long spells of what one rank does alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.analysis.rank_worlds import World, simulate
from tests.unit.diagnosis.judged_worlds import facts_of_ranks, judged
from traceml.diagnosis.alone import alone
from traceml.diagnosis.thresholds import LIMITS

EVALUATES = World(num_ranks=2, rank=0, phase="eval", delay_ms=9_000, every=100)
SAVES = World(num_ranks=4, rank=2, phase="checkpoint", delay_ms=4_000, every=50)
PUSHES = World(num_ranks=2, rank=0, phase="between_steps", delay_ms=9_000, every=40)


def test_a_rank_that_evaluates_alone_while_all_wait_is_told_with_the_steps_it_does_so_in() -> None:
    first = judged(EVALUATES, 299).step_time[0]

    assert (first.diagnosis, first.ranks, first.phases) == ("OVERHEAD_BOUND", (0,), ("eval",))
    assert first.summary.startswith("Rank 0 alone evaluates: all wait 18.1 s of ")
    assert first.summary.endswith(", in 2 of 299 steps.")
    assert "all ranks evaluate" in first.next
    assert first.severity == "warning"


def test_a_rank_of_four_that_saves_alone_is_told_and_shall_do_so_beside_the_training() -> None:
    first = judged(SAVES, 199).step_time[0]

    assert (first.diagnosis, first.ranks, first.phases) == ("OVERHEAD_BOUND", (2,), ("checkpoint",))
    assert first.summary.startswith("Rank 2 alone saves checkpoints: all wait ")
    assert "asynchronously" in first.next


def test_two_long_waits_of_one_rank_for_its_data_are_told() -> None:
    first = judged(replace(PUSHES, phase="input"), 119).step_time[0]

    assert (first.diagnosis, first.ranks, first.phases) == ("OVERHEAD_BOUND", (0,), ("input",))
    assert first.summary.startswith("Rank 0 alone waits for data: all wait 18.")
    assert "the loader of rank 0" in first.next


def test_what_nobody_named_is_told_as_what_passes_between_steps() -> None:
    first = judged(PUSHES, 119).step_time[0]

    assert (first.diagnosis, first.ranks, first.phases) == ("OVERHEAD_BOUND", (0,), ("between_steps",))
    assert ", in 2 of 119 steps." in first.summary


def test_the_price_is_what_all_would_win_without() -> None:
    found = alone(facts_of_ranks(simulate(EVALUATES, 299)), LIMITS)

    assert found is not None
    assert found.impact is not None
    assert 17_500 < found.impact.ms * 299 < 18_500


@pytest.mark.parametrize("phase", ["forward", "input", "between_steps"])
def test_one_spell_of_what_nobody_named_is_an_event(phase: str) -> None:
    assert alone(facts_of_ranks(simulate(replace(PUSHES, phase=phase, every=80), 119)), LIMITS) is None


def test_it_stays_quiet_just_below_its_limit() -> None:
    facts = facts_of_ranks(simulate(EVALUATES, 299))
    found = alone(facts, LIMITS)
    assert found is not None
    share = found.evidence[0].value / 100

    assert alone(facts, replace(LIMITS, alone_share=share + 1e-6)) is None
    assert alone(facts, replace(LIMITS, alone_share=share - 1e-6)) is not None


def test_what_all_ranks_do_is_not_done_alone() -> None:
    everyone = replace(EVALUATES, rank=None)

    assert alone(facts_of_ranks(simulate(everyone, 299)), LIMITS) is None
    assert judged(everyone, 299).step_time[0].summary.partition(" of the time ")[2].startswith("goes to evaluation")


def test_what_a_rank_does_alone_in_each_step_is_a_straggler_and_told_once() -> None:
    found = judged(World(rank=1, phase="between_steps", delay_ms=20), 120).step_time

    assert [finding.diagnosis for finding in found] == ["STRAGGLER"]


def test_it_stays_quiet_without_a_ledger() -> None:
    assert alone(replace(facts_of_ranks(simulate(EVALUATES, 299)), ledger=None), LIMITS) is None
