"""Holds the ledger to the facts: units between syncs, who was last, what was lost, and what it does not guess."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit.analysis.rank_worlds import MS, World, simulate, units_of
from traceml.analysis.ledger import MAX_WAITING, Ledger
from traceml.analysis.pricing import medians_of_others
from traceml.schema.phases import PHASES
from traceml.schema.records import StepRecord
from traceml.schema.syncs import SyncCut, UnitSums, merged

CALM = World(noise=0.0)


def step_of(
    number: int,
    *,
    rank: int = 0,
    before: Optional[dict[str, float]] = None,
    after: Optional[dict[str, float]] = None,
    sync: float = 5,
    num_syncs: int = 1,
    end_ms: Optional[float] = None,
    failed_in: Optional[str] = None,
) -> StepRecord:
    """A step of times in ms; without any sync where `num_syncs` is 0."""
    early = {**(before or {"forward": 10}), **({"sync": sync} if num_syncs else {})}
    late = after or {}
    cut_ns = tuple(round(early.get(name, 0) * MS) for name in PHASES)
    phase_ns = tuple(round((early.get(name, 0) + late.get(name, 0)) * MS) for name in PHASES)
    end_ns = round((end_ms if end_ms is not None else 100.0 * number) * MS)
    cut = SyncCut(num_syncs, end_ns - round(sum(late.values()) * MS), round(sync * MS), cut_ns)
    return StepRecord(
        rank, number, end_ns, sum(phase_ns), phase_ns, failed_in=failed_in, sync=cut if num_syncs else None
    )


def fed(*ranks: list[StepRecord]) -> tuple[Ledger, tuple[UnitSums, ...]]:
    ledger = Ledger(len(ranks))
    for rank, steps in enumerate(ranks):
        ledger.feed(rank, steps, regions={})
    return ledger, ledger.take()


def own_ms(unit: UnitSums) -> list[float]:
    return [rank.own.total / MS for rank in unit.by_rank]


def test_the_first_unit_and_the_last_steps_rest_belong_to_no_unit() -> None:
    steps = [step_of(number, after={"optimizer": 3}) for number in (1, 2, 3)]

    _, units = fed(steps, [s._replace(rank=1) for s in steps])

    assert [(unit.first_step, unit.last_step, unit.num_steps) for unit in units] == [(2, 2, 1), (3, 3, 1)]
    assert own_ms(units[0]) == [13, 13]


def test_what_comes_after_a_sync_counts_into_the_next_unit() -> None:
    slow_in_one = [step_of(n, after={"optimizer": 23 if n == 2 else 3}) for n in (1, 2, 3, 4)]
    others = [step_of(n, after={"optimizer": 3}) for n in (1, 2, 3, 4)]

    _, units = fed(others, slow_in_one, others)

    assert [own_ms(unit)[1] for unit in units] == [13, 33, 13]
    assert [unit.lost.total / MS for unit in units] == [0, 20, 0]
    assert [unit.by_rank[1].gain.total / MS for unit in units] == [0, 20, 0]
    assert units[1].by_rank[1].num_last == 1


def test_lost_is_the_last_over_the_median_and_of_two_ranks_the_whole_difference() -> None:
    def ranks(*forward: float) -> list[list[StepRecord]]:
        return [[step_of(n, before={"forward": ms}) for n in (1, 2)] for ms in forward]

    assert [unit.lost.total / MS for unit in fed(*ranks(10, 12, 20))[1]] == [8]
    assert [unit.lost.total / MS for unit in fed(*ranks(10, 20))[1]] == [10]


def test_gain_is_that_of_the_last_alone_down_to_the_second() -> None:
    ranks = [[step_of(n, before={"forward": ms}) for n in (1, 2)] for ms in (10, 12, 20, 17)]

    (unit,) = fed(*ranks)[1]

    assert [rank.gain.total / MS for rank in unit.by_rank] == [0, 0, 3, 0]


def test_transfer_is_what_the_last_to_arrive_waits() -> None:
    ranks = [[step_of(n, sync=sync) for n in (1, 2)] for sync in (25, 5.5, 24)]

    assert [unit.transfer.total / MS for unit in fed(*ranks)[1]] == [5.5]


def test_micro_batches_without_a_reduction_are_one_unit_with_the_one_that_reduces() -> None:
    def rank(late: int) -> list[StepRecord]:
        return [
            step_of(n, before={"forward": 20 if n % 4 == late else 10}, num_syncs=1, sync=5 if n % 4 == 0 else 0.02)
            for n in range(1, 17)
        ]

    _, units = fed(rank(1), rank(2), rank(3))

    assert [(unit.last_step, unit.num_steps) for unit in units] == [(8, 4), (12, 4), (16, 4)]
    assert all(unit.lost.total == 0 for unit in units)


def test_steps_without_any_sync_edge_are_added_up_too() -> None:
    steps = [step_of(n, num_syncs=int(n % 4 == 0)) for n in range(1, 13)]

    assert [unit.num_steps for unit in fed(steps, steps)[1]] == [4, 4]


def test_a_quick_sync_counts_where_another_rank_waited_in_it() -> None:
    last = [step_of(n, before={"forward": 30}, sync=0.05) for n in (1, 2, 3)]
    others = [step_of(n, before={"forward": 10}, sync=20) for n in (1, 2, 3)]

    _, units = fed(others, last, others)

    assert [unit.by_rank[1].gain.total / MS for unit in units] == [20, 20]


def test_a_rank_that_lacks_a_sync_is_not_aligned_and_said() -> None:
    others = [step_of(n) for n in range(1, 7)]
    odd = [step_of(n, num_syncs=0 if n == 4 else 1) for n in range(1, 7)]

    ledger, units = fed(others, odd, others)

    assert [unit.last_step for unit in units] == [2, 3, 6]
    assert ledger.state.num_unaligned == 1
    assert ledger.state.unaligned == "rank 1 synchronised not at all in step 4, others once"


def test_another_number_of_syncs_is_not_aligned_either() -> None:
    others = [step_of(n) for n in range(1, 4)]
    odd = [step_of(n, num_syncs=2) for n in range(1, 4)]

    ledger, units = fed(odd, others, others)

    assert not units
    assert ledger.state.num_unaligned == 3
    assert ledger.state.unaligned == "rank 0 synchronised twice in step 1, others once"


def test_steps_that_one_rank_lost_have_no_partner() -> None:
    whole = [step_of(n) for n in range(1, 9)]

    ledger, units = fed(whole, [s for s in whole if s.step not in (4, 5)])

    assert [unit.last_step for unit in units] == [2, 3, 7, 8]
    assert ledger.state.num_without_partner == 2


def test_uneven_inputs_align_until_the_shortest_ends() -> None:
    whole = [step_of(n) for n in range(1, 25)]

    _, units = fed(whole, whole[:20], whole[:16])

    assert units[-1].last_step == 16


def test_a_failed_step_and_one_with_compilation_are_in_no_unit() -> None:
    usual = [step_of(n) for n in range(1, 9)]
    failing = [s._replace(failed_in="forward") if s.step == 3 else s for s in usual]
    compiling = [step_of(n, before={"forward": 10, "compile": 90 if n == 6 else 0}) for n in range(1, 9)]

    _, units = fed(usual, failing, compiling)

    assert [unit.last_step for unit in units] == [2, 5, 7, 8]


def test_ranks_may_come_one_after_another_and_in_pieces() -> None:
    world = World(num_ranks=3, delay_ms=20, phase="input", rank=1)
    steps = simulate(world, 60)
    whole = units_of(steps)
    found: list[UnitSums] = []
    ledger = Ledger(3)
    for first in range(0, 60, 7):
        for rank in (2, 0, 1):
            ledger.feed(rank, steps[rank][first : first + 7], regions={})
            found += ledger.take()

    assert found == whole


def test_a_ledger_goes_on_from_the_stored_steps_as_if_it_had_never_stopped() -> None:
    steps = simulate(World(num_ranks=3, delay_ms=20, phase="optimizer", rank=1, sync_every=2), 90)
    whole = units_of(steps)
    first = Ledger(3)
    for rank in range(3):
        first.feed(rank, steps[rank][: 41 + rank], regions={})
    found = list(first.take())
    second = Ledger(3, first.state)
    for rank in range(3):
        second.feed(rank, steps[rank][first.state.from_step - 1 :], regions={})

    assert found + list(second.take()) == whole


def test_a_rank_that_lags_far_loses_the_oldest_and_they_are_counted() -> None:
    ledger = Ledger(2)
    room = MAX_WAITING // 2
    ledger.feed(0, [step_of(n) for n in range(1, room + 101)], regions={})
    ledger.feed(1, [step_of(n) for n in range(1, room + 101)], regions={})

    assert ledger.state.num_without_partner == 200  # 100 dropped, and their 100 partners
    assert len(ledger.take()) == room - 1


def test_a_rank_of_no_world_is_passed_over() -> None:
    ledger = Ledger(2)
    ledger.feed(7, [step_of(1)], regions={})

    assert not ledger.take()


def test_regions_are_phases_of_the_unit_by_their_names() -> None:
    def with_region(number: int, rank: int) -> list[StepRecord]:
        made = []
        for step in (step_of(n, rank=rank) for n in (1, 2)):
            assert step.sync is not None
            cut = step.sync._replace(region_ns=((number, 4 * MS),))
            made.append(step._replace(region_ns=((number, 6 * MS),), sync=cut))
        return made

    ledger = Ledger(2)
    ledger.feed(0, with_region(0, 0), regions={0: "augment"})
    ledger.feed(1, with_region(3, 1), regions={3: "augment"})
    (unit,) = ledger.take()

    assert unit.phases == ("forward", "region:augment")
    assert own_ms(unit) == [16, 16]


@pytest.mark.parametrize("values", [[5, 1], [5, 1, 9], [4, 4, 4, 1], [7, 3, 9, 1, 5], [2, 2, 8, 8, 5, 5]])
def test_the_median_of_the_others_leaves_the_own_value_out(values: list[int]) -> None:
    for at, found in enumerate(medians_of_others(values)):
        rest = sorted(values[:at] + values[at + 1 :])
        assert found == (rest[(len(rest) - 1) // 2] + rest[len(rest) // 2]) // 2


def test_tens_of_transfers_are_counted_over_the_units() -> None:
    whole = merged(units_of(simulate(World(num_ranks=2), 45)))

    assert whole is not None
    assert whole.tens.num == 4  # of 44 units


def test_merging_keeps_sums_and_extremes_also_over_other_phases() -> None:
    plain = fed(*[[step_of(n) for n in (1, 2)]] * 2)[1][0]
    more = fed(*[[step_of(n, before={"input": 4, "forward": 10}) for n in (1, 2)]] * 2)[1][0]
    whole = merged([plain, replace_step(more, 3)])

    assert whole is not None
    assert whole.phases == ("forward", "input")
    assert (whole.by_rank[0].own.total, whole.by_rank[0].own.minimum) == (24 * MS, 10 * MS)


def replace_step(unit: UnitSums, step: int) -> UnitSums:
    return unit._replace(first_step=step, last_step=step)


def test_syncs_that_end_half_a_unit_apart_are_told() -> None:
    usual = [step_of(n) for n in range(1, 5)]
    shifted = [step_of(n, end_ms=100.0 * n + 60) for n in range(1, 5)]

    assert all(unit.num_apart for unit in fed(usual, shifted)[1])
    assert not any(unit.num_apart for unit in fed(usual, usual)[1])


def test_the_optimizers_carry_names_the_rank_that_was_late_in_that_unit() -> None:
    world = replace(CALM, delay_ms=20, phase="optimizer", is_turning=True)
    units = units_of(simulate(world, 40))
    last = [[rank.num_last for rank in unit.by_rank].index(1) for unit in units]

    assert last == [(unit.last_step - 1) % 4 for unit in units]
    assert sum(abs(unit.lost.total / MS - 20) < 3 for unit in units) > 0.8 * len(units)
