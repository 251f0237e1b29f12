"""Shows which waits are events, what remains without them, and which rank stands for the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.analysis.rank_worlds import World, simulate, units_of
from tests.unit.diagnosis.judged_worlds import facts_of_ranks
from traceml.analysis.outlying import outlying, steps_of
from traceml.schema.syncs import UnitSums, merged


def units(*steps: int, ms: float = 5_000.0, num_steps: int = 99) -> list[UnitSums]:
    return units_of(simulate(World(pauses={(step, 1): ms for step in steps}), num_steps))


def test_up_to_three_long_waits_are_events() -> None:
    assert [unit.last_step for unit in outlying(units(40))] == [40]
    assert [unit.last_step for unit in outlying(units(30, 50, 70))] == [30, 50, 70]
    assert outlying(units(30, 40, 50, 70)) == ()
    assert outlying(units()) == ()
    assert outlying([]) == ()


def test_a_wait_of_fewer_than_twenty_typical_units_is_none() -> None:
    assert outlying(units(40, ms=200.0)) == ()
    assert len(outlying(units(40, ms=700.0))) == 1


def test_a_few_of_few_are_no_exception() -> None:
    assert outlying(units(10, num_steps=18)) == ()
    assert len(outlying(units(10, num_steps=24))) == 1


def test_a_piece_of_many_units_is_left_out_only_where_it_is_few_of_all() -> None:
    single = units(40, num_steps=400)
    coarse = [part for at in range(0, len(single), 8) if (part := merged(single[at : at + 8])) is not None]
    coarser = [part for at in range(0, len(single), 64) if (part := merged(single[at : at + 64])) is not None]

    (found,) = outlying(coarse)
    assert found.num_units == 8
    assert 40 in steps_of(found)
    assert outlying(coarser) == ()


def test_the_steps_of_a_unit_reach_back_to_the_sync_that_opened_it() -> None:
    accumulated = units_of(simulate(World(sync_every=4), 40))[0]

    assert (accumulated.last_step, accumulated.num_steps) == (8, 4)
    assert list(steps_of(accumulated)) == [4, 5, 6, 7, 8]


def test_what_remains_has_neither_the_long_step_nor_its_neighbour() -> None:
    facts = facts_of_ranks(simulate(World(pauses={(40, 1): 5_000.0}), 99))

    assert facts.calm is not None
    assert facts.calm.calm is None
    assert [(step, ns >= 4_900_000_000) for step, ns in facts.outliers] == [(40, True)]
    for rank, calm in zip(facts.ranks, facts.calm.ranks):
        assert rank.num_steady - calm.num_steady == 2
        assert rank.total_ns - calm.total_ns > 4_900_000_000
    assert facts.ledger is not None
    assert facts.calm.ledger is not None
    assert facts.ledger.num_units - facts.calm.ledger.num_units == 1


@pytest.mark.parametrize(
    ("late", "expected"), [((), {0, 1, 2, 3}), ((3,), {0, 1, 2}), ((1, 2), {0, 3}), ((0, 1, 3), {2})]
)
def test_the_rank_that_stands_for_all_is_none_of_those_behind(late: tuple[int, ...], expected: set[int]) -> None:
    world = World(phase="forward", delay_ms=30)
    world = replace(world, rank=late[0], also_late=late[1:]) if late else replace(world, delay_ms=0.0)
    rank = facts_of_ranks(simulate(world, 80)).median_rank

    assert rank is not None
    assert rank.state.identity.rank in expected
