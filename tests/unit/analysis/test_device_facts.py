"""Holds Facts on the device's clock: chosen when most steady steps of every rank have it, the wall beside it."""

from __future__ import annotations

import pytest

from tests.builders import block_of, facts_of_steps, numbered, rank_state, step_ms, timed
from traceml.analysis.gather import RankWindow, facts_of
from traceml.schema.distribution import Distribution
from traceml.schema.phases import PHASES
from traceml.schema.records import Block, DeviceBlock, DeviceSample, StepRecord

HOST = step_ms(input=12, forward=1, backward=1, in_step=6)
TIMED = timed(HOST, run_ahead=(3, 5), input=2, forward=6, backward=12)
CUDA = rank_state(device="cuda:0")
S = 1_000_000_000


def test_the_devices_clock_is_used_when_all_steps_have_it() -> None:
    facts = facts_of_steps([TIMED] * 20, state=CUDA)

    rank = facts.ranks[0]
    assert facts.clock == "device"
    assert rank.share("input") == 0.1
    assert rank.wall.share("input") == 0.6
    assert rank.typical_ns == pytest.approx(20e6, rel=0.01)


@pytest.mark.parametrize(("num_without", "clock"), [(0, "device"), (4, "device"), (5, "host"), (20, "host")])
def test_the_devices_clock_needs_most_of_the_steady_steps(num_without: int, clock: str) -> None:
    facts = facts_of_steps([*[TIMED] * (20 - num_without), *[HOST] * num_without], state=CUDA)

    assert facts.clock == clock


def test_steps_without_it_are_left_out_of_the_shares_and_counted() -> None:
    facts = facts_of_steps([*[TIMED] * 18, *[HOST] * 2], state=CUDA)

    rank = facts.ranks[0]
    assert (rank.num_steady, rank.num_untimed, rank.wall.num_steady) == (18, 2, 20)
    assert rank.total_ns == 18 * 20_000_000


def test_too_few_steps_with_it_are_told() -> None:
    facts = facts_of_steps([*[TIMED] * 8, *[HOST] * 12], state=CUDA)

    assert facts.notes == (
        "rank 0: only 8 of 20 steady steps have the device's clock: the shares are those of the host's",
    )


def test_a_run_without_a_device_has_no_note_and_no_device_facts() -> None:
    facts = facts_of_steps([HOST] * 20)

    assert (facts.clock, facts.notes, facts.ranks[0].device) == ("host", (), None)
    assert facts.ranks[0].wall is facts.ranks[0]


def test_all_ranks_are_on_one_clock() -> None:
    own = [numbered([TIMED] * 20), numbered([step._replace(rank=1) for step in [HOST] * 20])]
    states = [rank_state(rank=rank, world_size=2, device="cuda:0") for rank in (0, 1)]

    facts = facts_of([RankWindow(state, steps) for state, steps in zip(states, own)], world_size=2)

    assert facts.clock == "host"
    assert facts.ranks[0].share("input") == 0.6


def test_blocks_and_raw_steps_make_the_same_facts() -> None:
    steps = numbered([timed(HOST, run_ahead=(3, 5 + n % 3), forward=6 + n % 5, backward=12) for n in range(128)])
    block = with_device(block_of(steps[:64]), steps[:64])

    raw = facts_of([RankWindow(CUDA, steps)]).ranks[0]
    mixed = facts_of([RankWindow(CUDA, (block, *steps[64:]))]).ranks[0]

    assert mixed.period == raw.period
    assert mixed.phases == raw.phases
    assert mixed.device is not None
    assert raw.device is not None
    assert mixed.device.run_ahead_high == raw.device.run_ahead_high


def with_device(block: Block, steps: tuple[StepRecord, ...]) -> Block:
    times = [step.device for step in steps if step.device]
    found = {name: Distribution() for name in PHASES}
    for own in times:
        for name, ns in zip(PHASES, own.phase_ns):
            if ns is not None:
                found[name].add(ns)
    lows, highs = zip(*(own.run_ahead_ns for own in times))
    device = DeviceBlock(
        Distribution.of(own.period_ns for own in times),
        {name: spent for name, spent in found.items() if spent.count},
        run_ahead_low=Distribution.of(ns for ns in lows if ns is not None),
        run_ahead_high=Distribution.of(ns for ns in highs if ns is not None),
    )
    return Block(**{**vars(block), "device": device})


def test_run_ahead_counts_only_the_steps_where_a_bound_is_known() -> None:
    open_ended = timed(HOST, run_ahead=(3, None), forward=6)
    device = facts_of_steps([TIMED, open_ended] * 10, state=CUDA).ranks[0].device

    assert device is not None
    assert (device.run_ahead_low.count, device.run_ahead_high.count) == (20, 10)


def test_how_busy_the_device_is_counts_only_while_steady_steps_ran() -> None:
    samples = [DeviceSample(at_ns=at * S, uuid="G", busy_percent=90.0 if at >= 5 else 0.0) for at in range(-5, 12)]
    steps = [record._replace(end_ns=5 * S + n * S // 4) for n, record in enumerate(numbered([TIMED] * 20), start=1)]

    system = facts_of([RankWindow(CUDA, tuple(steps))], devices=samples).system

    assert system.device_busy_percent_steady == 90.0
    assert system.num_device_samples_steady == 5
    assert (system.device_busy_percent_mean or 0) < 45
