"""Every rule on several ranks: it fires, it stays quiet just below its limit, it stays quiet without data."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit.analysis.rank_worlds import World, simulate
from tests.unit.diagnosis.judged_worlds import facts_of_ranks
from traceml.analysis.facts import Facts
from traceml.diagnosis.ground import undecided
from traceml.diagnosis.luck import chance_of_last, clumping
from traceml.diagnosis.ranks import comm_bound, rotating_straggler
from traceml.diagnosis.straggler import slow_rank, straggler
from traceml.diagnosis.thresholds import LIMITS
from traceml.diagnosis.verdict import Rule, diagnose
from traceml.schema.records import StepRecord

LATE = World(phase="input", delay_ms=20, rank=2)
TURNING = World(phase="forward", delay_ms=10, is_turning=True)
COMM = World(transfer_ms=25)
BUSY = World(slow_rank={2: 1.35})


def facts(world: World, num_steps: int = 80, *, num_cores: Optional[float] = 2.0) -> Facts:
    return facts_of_ranks(simulate(world, num_steps), num_cores=num_cores)


def test_a_straggler_is_named_with_its_phase_price_and_reason() -> None:
    found = straggler(facts(LATE), LIMITS)

    assert found is not None
    assert (found.ranks, found.phases, found.severity) == ((2,), ("input",), "critical")
    assert "of each step all wait for rank 2, in input: " in found.summary
    assert "came last in 79 of 79 synchronisations" in found.why
    assert found.next.startswith("look at the data and storage of rank 2")


def test_a_straggler_of_two_ranks_is_told_by_the_difference() -> None:
    found = straggler(facts(replace(LATE, num_ranks=2, rank=1, phase="forward", delay_ms=5)), LIMITS)

    assert found is not None
    assert found.summary.startswith("Rank 1 is ")
    assert found.summary.endswith(" ms behind rank 0 in forward.")


def test_no_straggler_just_below_the_share() -> None:
    found = straggler(facts(LATE), LIMITS)
    assert found is not None
    low_share = found.evidence[0].value / 100

    assert straggler(facts(LATE), replace(LIMITS, straggler_share=low_share + 1e-6)) is None
    assert straggler(facts(LATE), replace(LIMITS, straggler_share=low_share - 1e-6)) is not None


def test_no_straggler_when_luck_could_do_it() -> None:
    assert straggler(facts(LATE), replace(LIMITS, last_by_luck=1e-60, gain_of_one=1.01)) is None


NOW_AND_THEN = World(phase="between_steps", delay_ms=300, rank=0, every=10)


def test_a_rank_that_is_late_every_tenth_step_and_then_long_is_the_straggler_and_nothing_turns() -> None:
    judged = facts(NOW_AND_THEN)
    found = straggler(judged, LIMITS)

    assert found is not None
    assert (found.ranks, found.phases) == ((0,), ("between_steps",))
    assert rotating_straggler(judged, LIMITS) is None
    assert straggler(judged, replace(LIMITS, gain_of_one=1.01)) is None
    assert rotating_straggler(judged, replace(LIMITS, gain_of_one=1.01)) is None


@pytest.mark.parametrize("every", [40, 80])
def test_one_or_two_long_steps_make_no_straggler(every: int) -> None:
    assert straggler(facts(replace(NOW_AND_THEN, every=every)), LIMITS) is None


def test_no_straggler_without_a_phase_that_covers_its_excess() -> None:
    assert straggler(facts(LATE), replace(LIMITS, excess_coverage=1.0)) is None


def test_twenty_units_are_needed() -> None:
    enough, few = facts(LATE, 21), facts(LATE, 20)
    assert (enough.ledger and enough.ledger.num_units, few.ledger and few.ledger.num_units) == (20, 19)

    assert straggler(enough, LIMITS) is not None
    assert straggler(few, LIMITS) is None
    first = diagnose(few).step_time[0]
    assert first.diagnosis == "INSUFFICIENT_DATA"
    assert first.summary == "19 of 20 synchronisations of the ranks seen."
    assert first.next == "run at least 1 more steps"


def test_accumulation_says_how_many_steps_twenty_units_take() -> None:
    first = diagnose(facts(replace(LATE, sync_every=4), 60)).step_time[0]

    assert first.summary == "14 of 20 synchronisations of the ranks seen."
    assert first.next == "run at least 24 more steps"


@pytest.mark.parametrize("rule", [straggler, slow_rank, rotating_straggler, comm_bound])
def test_no_rule_speaks_without_a_ledger(rule: Rule) -> None:
    assert rule(replace(facts(LATE), ledger=None), LIMITS) is None
    assert rule(facts_of_ranks([[], []]), LIMITS) is None


def test_a_slow_rank_is_information_with_its_phases() -> None:
    found = slow_rank(facts(BUSY), LIMITS)

    assert found is not None
    assert (found.severity, found.ranks) == ("info", (2,))
    assert found.summary.startswith("Rank 2 is slower in several phases: ")
    assert set(found.phases) == {"forward", "backward", "optimizer"}


def test_no_slow_rank_where_one_phase_covers_it() -> None:
    assert slow_rank(facts(LATE), LIMITS) is None


def test_a_rotation_stays_quiet_just_below_its_limit() -> None:
    found = rotating_straggler(facts(TURNING), LIMITS)
    assert found is not None
    low_share = found.evidence[0].value / 100

    assert rotating_straggler(facts(TURNING), replace(LIMITS, rotating_share=low_share + 1e-6)) is None


@pytest.mark.parametrize(("num_cores", "is_told"), [(2.0, True), (4.0, False), (None, False)])
def test_pauses_on_a_host_with_fewer_cores_than_ranks_may_be_their_turns(
    num_cores: Optional[float], *, is_told: bool
) -> None:
    found = rotating_straggler(facts(TURNING, num_cores=num_cores), LIMITS)

    assert found is not None
    assert ("4 ranks share 2 cores" in found.why) == is_told


def test_two_ranks_turn_only_from_a_quarter_of_the_time_on_and_in_one_phase() -> None:
    little, much = (facts(World(num_ranks=2, phase="forward", delay_ms=ms, is_turning=True)) for ms in (4, 20))

    assert rotating_straggler(little, LIMITS) is None
    assert rotating_straggler(little, replace(LIMITS, rotating_share_of_pair=0.12)) is not None
    assert rotating_straggler(much, LIMITS) is not None
    assert rotating_straggler(much, replace(LIMITS, excess_coverage=1.0)) is None


def test_no_rotation_where_few_ranks_come_last() -> None:
    assert rotating_straggler(facts(TURNING), replace(LIMITS, culprits_share=1.0)) is None


def test_communication_needs_40_percent_on_a_crowded_host_and_20_elsewhere() -> None:
    healthy = replace(COMM, transfer_ms=6.5)

    assert comm_bound(facts(healthy), LIMITS) is None
    assert comm_bound(facts(healthy, num_cores=None), LIMITS) is None
    found = comm_bound(facts(healthy, num_cores=8.0), LIMITS)
    assert found is not None
    assert (found.severity, found.phases) == ("warning", ("sync",))


def test_a_crowded_host_is_said() -> None:
    found = comm_bound(facts(COMM), LIMITS)

    assert found is not None
    assert "4 ranks share 2.00 cores" in found.why
    assert "as many ranks as there are cores" in found.next


def test_communication_under_half_a_millisecond_is_none() -> None:
    tiny = [[_shrunk(step) for step in own] for own in simulate(COMM, 80)]

    assert comm_bound(facts_of_ranks(tiny), LIMITS) is None


def _shrunk(step: StepRecord) -> StepRecord:
    assert step.sync is not None
    cut = step.sync._replace(phase_ns=tuple(ns // 100 for ns in step.sync.phase_ns))
    phase_ns = tuple(None if ns is None else ns // 100 for ns in step.phase_ns)
    return step._replace(period_ns=sum(ns or 0 for ns in phase_ns), phase_ns=phase_ns, sync=cut)


def test_a_wait_that_cannot_be_split_names_nobody_and_says_why() -> None:
    reason = "torch.compile puts FSDP2's waits into the graph"
    known = facts_of_ranks(simulate(LATE, 80), unwatched={"sync": reason})

    assert undecided(known, LIMITS) == reason
    assert straggler(known, LIMITS) is None
    first = diagnose(known).step_time[0]
    assert f"who waits for whom is not decided: {reason}" in first.why


def test_ranks_that_do_not_synchronise_alike_are_not_decided() -> None:
    steps = simulate(LATE, 80)
    steps[1] = [step._replace(sync=None) if step.step % 3 == 0 else step for step in steps[1]]
    known = facts_of_ranks(steps)

    assert straggler(known, LIMITS) is None
    assert undecided(known, LIMITS).startswith("the ranks do not synchronise alike: rank 1 synchronised not at all in")


def test_one_odd_step_does_not_silence_the_rules() -> None:
    steps = simulate(LATE, 80)
    steps[1] = [step._replace(sync=None) if step.step == 40 else step for step in steps[1]]

    assert straggler(facts_of_ranks(steps), LIMITS) is not None


def test_ranks_that_never_synchronise_are_not_decided_and_judged_as_ever() -> None:
    steps = [[step._replace(sync=None) for step in own] for own in simulate(replace(LATE, rank=None), 80)]
    known = facts_of_ranks(steps)

    assert undecided(known, LIMITS) == "no synchronisation between the ranks was seen"
    assert diagnose(known).step_time[0].diagnosis == "INPUT_BOUND"


def test_a_rank_that_was_not_heard_is_said() -> None:
    known = facts_of_ranks(simulate(LATE, 80), world_size=6)

    assert undecided(known, LIMITS) == "ranks 4 and 5 of 6 were not heard here"
    assert straggler(known, LIMITS) is None


def test_ranks_on_a_device_are_not_judged_by_the_hosts_clock() -> None:
    known = facts_of_ranks(simulate(LATE, 80), device="cuda:0")

    assert straggler(known, LIMITS) is None
    assert undecided(known, LIMITS) == "the waits of ranks on cuda are not told apart yet"
    assert undecided(replace(known, clock="device"), LIMITS) == "the waits of ranks on cuda are not told apart yet"


def test_steps_that_are_shifted_against_each_other_are_not_decided() -> None:
    steps = simulate(LATE, 80)
    steps[3] = [
        later._replace(rank=3, step=one.step) for one, later in zip(steps[3], steps[3][1:])
    ]  # the first step was never seen

    assert undecided(facts_of_ranks(steps), LIMITS) == "the ranks' synchronisations do not end together"


def test_one_process_has_nothing_to_decide() -> None:
    assert undecided(facts(replace(LATE, num_ranks=2)), LIMITS) == ""
    assert undecided(replace(facts(LATE), world_size=1), LIMITS) == ""


@pytest.mark.parametrize(
    ("num_last", "num_units", "num_ranks", "expected"),
    [(5, 20, 4, 1.0), (20, 20, 2, 2 / 2**20), (20, 20, 4, 4 / 4**20), (0, 20, 2, 1.0)],
)
def test_luck_is_the_binomial_tail_over_all_ranks(
    num_last: int, num_units: int, num_ranks: int, expected: float
) -> None:
    assert chance_of_last(num_last, num_units, num_ranks) == pytest.approx(expected)


def test_luck_over_many_units_is_bounded_from_above_and_never_fails() -> None:
    assert chance_of_last(520_000, 1_000_000, 2) < LIMITS.last_by_luck
    assert chance_of_last(500_100, 1_000_000, 2) > LIMITS.last_by_luck
    assert chance_of_last(1_000_000, 1_000_000, 2) == pytest.approx(0.0, abs=1e-300)


def test_last_places_in_clumps_are_worth_fewer_units() -> None:
    evenly, clumped = [(1, 2)] * 40, [(8, 8)] * 5 + [(0, 8)] * 5

    assert clumping(evenly) == 1.0
    assert clumping(clumped) > 8  # a block is worth one
    assert clumping([(1, 1)] * 80) == 1.0
    assert clumping([(1, 2)] * 8) == 1.0
    assert clumping([]) == 1.0


def test_units_of_the_warm_up_alone_are_missing_and_not_unseen() -> None:
    known = facts(replace(LATE, sync_every=25), 60)
    first = diagnose(known).step_time[0]

    assert undecided(known, LIMITS) == ""
    assert first.summary == "1 of 20 synchronisations of the ranks seen."


def test_an_odd_step_long_ago_does_not_silence_a_short_range() -> None:
    known = facts(LATE, 40)
    assert known.ledger is not None
    long_run = replace(known.ledger, num_synced=5_000, num_unaligned=20)

    assert straggler(replace(known, ledger=long_run), LIMITS) is not None


@pytest.mark.parametrize(
    ("phase", "where"),
    [("between_steps", "between steps"), ("in_step", "in the rest of the step"), ("input", "in input")],
)
def test_the_place_of_a_straggler_reads_aloud(phase: str, where: str) -> None:
    found = straggler(facts(replace(LATE, phase=phase)), LIMITS)

    assert found is not None
    assert f"all wait for rank 2, {where}: " in found.summary
    assert "rank 2" in found.next
