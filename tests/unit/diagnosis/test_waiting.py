"""Shows that nobody is told that all is well while the ranks wait for one another, and what their waits are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit.analysis.rank_worlds import World, simulate
from tests.unit.diagnosis.judged_worlds import facts_of_ranks
from traceml.analysis.facts import Facts
from traceml.diagnosis.finding import Finding
from traceml.diagnosis.thresholds import LIMITS, Thresholds
from traceml.diagnosis.verdict import diagnose

HEALTHY = "No single cause is worth a look"
TURNS = World(transfer_ms=1.5, phase="forward", delay_ms=3, is_turning=True)


def facts(world: World, *, num_cores: Optional[float]) -> Facts:
    return facts_of_ranks(simulate(world, 80), num_cores=num_cores)


def first(world: World, *, num_cores: Optional[float] = 2.0, limits: Thresholds = LIMITS) -> Finding:
    found = diagnose(facts(world, num_cores=num_cores), limits).step_time[0]
    assert found.diagnosis == "BALANCED"
    return found


@pytest.mark.parametrize("transfer_ms", [5.5, 9.0])
def test_ranks_that_outnumber_their_cores_are_told_so_beside_what_they_wait(transfer_ms: float) -> None:
    found = first(World(transfer_ms=transfer_ms))

    assert "of the time the ranks wait for one another: " in found.summary
    assert found.summary.endswith(" ms a step, and no single cause holds it.")
    assert "4 ranks share 2 cores" in found.why
    assert "is communication itself" in found.why
    assert found.next.startswith("run as many ranks as there are cores")


def test_waits_for_another_rank_each_time_are_told_with_their_turns() -> None:
    found = first(TURNS, num_cores=8.0, limits=replace(LIMITS, rotating_share=0.5))

    assert HEALTHY not in found.summary
    assert "for whoever comes last; to be won: " in found.why
    assert found.next.startswith("give all ranks batches of like length")


def test_waits_that_are_communication_for_the_most_part_are_told_so() -> None:
    found = first(World(transfer_ms=3.0), num_cores=8.0, limits=replace(LIMITS, waiting_share=0.1))

    assert "share" not in found.why.partition("synchronisations")[2]
    assert found.next.startswith("reduce less often or less")


def test_just_below_the_share_all_is_well() -> None:
    world = World(transfer_ms=5.5)
    rank = facts(world, num_cores=2.0).median_rank
    assert rank is not None
    share = rank.share("sync")
    assert share is not None

    assert HEALTHY not in first(world, limits=replace(LIMITS, waiting_share=share)).summary
    assert HEALTHY in first(world, limits=replace(LIMITS, waiting_share=share + 1e-6)).summary


def test_where_nobody_can_tell_who_waits_for_whom_that_is_what_is_said() -> None:
    unwatched = {"sync": "part of the ranks communicate among themselves"}
    found = diagnose(facts_of_ranks(simulate(World(), 80), unwatched=unwatched)).step_time[0]

    assert HEALTHY not in found.summary
    assert "worth a look" not in found.summary
    assert found.summary == "33 % of the time the ranks wait for one another, and who for whom is not known."
    assert "TraceML does not judge it" not in found.next
    assert "who waits for whom is not decided: part of the ranks" in found.why


def test_a_host_that_is_not_full_has_no_turns_to_wait_for() -> None:
    known = facts(World(transfer_ms=5.5), num_cores=2.0)
    idle = replace(known, system=replace(known.system, cpu_percent_mean=30.0, overrun_share=0.1))
    found = diagnose(idle).step_time[0]

    assert not found.next.startswith("run as many ranks as there are cores")


def test_a_rank_that_holds_most_of_the_waits_is_not_denied() -> None:
    world = World(num_ranks=2, phase="between_steps", delay_ms=300, rank=0, every=10)
    found = diagnose(
        facts(world, num_cores=8.0), replace(LIMITS, straggler_share=0.9, rotating_share=0.9, alone_share=2)
    )

    assert "no single cause holds it" not in found.step_time[0].summary
    assert "30.4 ms of it for rank 0" in found.step_time[0].summary
    assert "rank 0" in found.step_time[0].next


def test_where_nobody_can_tell_the_rank_that_does_most_is_where_to_look_first() -> None:
    unwatched = {"sync": "ranks send to one another in pairs (pipeline parallel?)"}
    late = World(num_ranks=2, phase="forward", delay_ms=30, rank=1)
    first = diagnose(facts_of_ranks(simulate(late, 80), unwatched=unwatched)).step_time[0]
    alike = diagnose(facts_of_ranks(simulate(World(), 80), unwatched=unwatched)).step_time[0]

    assert "worth a look" not in first.summary
    assert first.next.startswith("look at rank 1 first, with torch.profiler: beside waiting it does most, ")
    assert first.ranks != (1,)
    assert "about as much" in alike.next
