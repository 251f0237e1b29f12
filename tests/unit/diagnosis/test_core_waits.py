"""Tests what is said of a cost where the wait for a core explains it, and that nothing is where it does not."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from tests.builders import facts_of_steps, host_samples, loader_info, numbered, rank_state, step_ms
from tests.unit.analysis.rank_worlds import World, simulate
from tests.unit.diagnosis.judged_worlds import facts_of_ranks
from traceml.diagnosis.finding import Finding
from traceml.diagnosis.verdict import diagnose
from traceml.schema import phases
from traceml.schema.records import LoaderInfo, ProcessSample, StepRecord

BETWEEN = step_ms(input=0.1, between_steps=4, forward=6)
WAITS = step_ms(input=6, forward=4)
MEANWHILE = "; meanwhile the training waited for a core "


def waited(share: Optional[float], *, rank: int = 0) -> list[ProcessSample]:
    """Samples of a rank from 0 to 100 ms that wait this share of the time; None: the system does not tell."""
    ends_ns = 100_000_000
    delays = (None, None) if share is None else (0, round(share * ends_ns))
    return [ProcessSample(rank, at, run_delay_ns=delay) for at, delay in zip((0, ends_ns), delays)]


def judged(
    step: StepRecord, share: Optional[float], *, loader: Optional[LoaderInfo] = None, **surroundings: Any
) -> Finding:
    steps = in_few_steps(step, 60)
    facts = facts_of_steps(steps, state=rank_state(loader=loader), processes=waited(share), **surroundings)
    return diagnose(facts).step_time[0]


def in_few_steps(step: StepRecord, num_steps: int) -> list[StepRecord]:
    """So many steps, of which every fourth has what four such steps do beside the model's work."""
    own = (phases.PHASE_INDEX["forward"], phases.PHASE_INDEX["backward"])
    found = []
    for number in range(num_steps):
        times = 4 if number % 4 == 3 else 0
        spent = tuple(ns if at in own or ns is None else ns * times for at, ns in enumerate(step.phase_ns))
        found.append(step._replace(phase_ns=spent, period_ns=sum(ns or 0 for ns in spent)))
    return found


def test_time_between_steps_that_the_wait_for_a_core_explains_is_information() -> None:
    found = judged(BETWEEN, 0.28, host=host_samples(num_cores=2.0))

    assert (found.diagnosis, found.severity) == ("OVERHEAD_BOUND", "info")
    assert found.summary == (
        "40 % of the time passes between steps, most of it in 15 of 60 steps: 240 of 606 ms; "
        "meanwhile the training waited for a core 28 % of the time."
    )
    assert found.why.startswith(
        "waiting for a core took 2.83 of 10.1 ms a step, which may be most of it; between steps "
    )
    assert found.next == (
        "other processes or threads take the 2 cores: stop them, or give this run cores of its own "
        "(taskset, a smaller --nproc-per-node, fewer loader workers)"
    )
    assert found.evidence[-1].name == "waiting for a core"


@pytest.mark.parametrize(
    ("step", "share", "is_explained"),
    [
        (BETWEEN, 0.20, True),
        (BETWEEN, 0.19, False),  # under half of the price
        (step_ms(in_step=2.0, forward=8.0), 0.11, True),
        (step_ms(in_step=2.0, forward=8.0), 0.099, False),  # under half of the price, and under a tenth of the time
        (step_ms(in_step=1.0, eval=1.0, forward=8.0), 0.101, True),
        (step_ms(in_step=1.0, eval=1.0, forward=8.0), 0.099, False),  # over half of the price, under a tenth
    ],
)
def test_the_wait_explains_from_half_of_the_price_and_a_tenth_of_the_time_on(
    step: StepRecord, share: float, is_explained: bool
) -> None:
    assert (MEANWHILE in judged(step, share).summary) == is_explained


def test_a_wait_as_long_as_the_price_is_called_enough_to_explain_it() -> None:
    assert ", enough to explain it; " in judged(BETWEEN, 0.4).why
    assert ", which may be most of it; " in judged(BETWEEN, 0.39).why


def test_without_data_nothing_is_said_of_cores() -> None:
    found = judged(BETWEEN, None)

    assert found.severity == "critical"
    assert "core" not in found.summary + found.why + found.next


@pytest.mark.parametrize("loader", [None, loader_info(0), loader_info(None)])
def test_batches_made_in_the_training_wait_for_its_core(loader: Optional[LoaderInfo]) -> None:
    found = judged(WAITS, 0.35, loader=loader)

    assert (found.diagnosis, found.severity) == ("INPUT_BOUND", "info")
    assert MEANWHILE in found.summary


def test_a_wait_for_workers_is_not_explained_by_the_trainings_own_wait_for_a_core() -> None:
    found = judged(WAITS, 0.35, loader=loader_info(2))

    assert (found.diagnosis, found.severity) == ("INPUT_BOUND", "critical")
    assert MEANWHILE not in found.summary


def test_a_loader_that_sleeps_most_of_its_time_stays_what_it_is() -> None:
    found = judged(step_ms(input=90, forward=10), 0.2, loader=loader_info(0))

    assert (found.diagnosis, found.severity) == ("INPUT_BOUND", "critical")


def test_the_models_own_work_is_left_as_it_is() -> None:
    found = judged(step_ms(input=0.1, forward=10), 0.5)

    assert found.diagnosis == "COMPUTE_BOUND"
    assert MEANWHILE not in found.summary


def test_a_cause_that_cores_do_not_explain_leads_a_larger_one_that_they_do() -> None:
    step = step_ms(input=3, between_steps=4, forward=3)

    diagnosis = diagnose(
        facts_of_steps(in_few_steps(step, 60), state=rank_state(loader=loader_info(2)), processes=waited(0.3))
    )

    assert [finding.diagnosis for finding in diagnosis.step_time] == ["INPUT_BOUND", "OVERHEAD_BOUND"]
    assert diagnosis.verdict.diagnosis == "INPUT_BOUND"


def test_a_quota_is_not_called_other_processes() -> None:
    found = judged(BETWEEN, 0.4, host=host_samples(num_cores=2.0, throttled=True))

    assert found.next.startswith("the CPU quota stops the run")


@pytest.mark.parametrize(("cores", "named"), [(None, "the cores:"), (1.0, "the only core:"), (2.5, "the 2.5 cores:")])
def test_the_cores_are_named_as_far_as_they_are_known(cores: Optional[float], named: str) -> None:
    assert f" take {named} " in judged(BETWEEN, 0.4, host=host_samples(num_cores=cores)).next


LATE = simulate(World(phase="forward", delay_ms=20, rank=2), 80)


def of_late_rank(*shares: Optional[float]) -> Finding:
    """What is said of rank 2, which is 20 ms late in its forward, where the ranks wait these shares for a core."""
    samples = [sample for rank, share in enumerate(shares) for sample in waited(share, rank=rank)]
    found = diagnose(facts_of_ranks(LATE, processes=samples)).step_time
    (one,) = (finding for finding in found if finding.diagnosis in ("STRAGGLER", "SLOW_RANK"))
    assert one.ranks == (2,)
    return one


def test_a_late_rank_that_waits_for_a_core_is_no_straggler_and_its_wait_is_said() -> None:
    found = of_late_rank(0.02, 0.03, 0.5, 0.02)

    assert (found.diagnosis, found.severity) == ("SLOW_RANK", "info")
    assert found.summary.startswith("Rank 2 is slower in forward: ")
    assert found.why.endswith("; meanwhile it waited for a core 50 % of the time")


@pytest.mark.parametrize(
    "shares",
    [
        (0.02, 0.02, 0.02, 0.02),
        (0.5, 0.5, 0.5, 0.5),  # no more than the others
        (0.5, 0.02, 0.02, 0.02),  # another rank
        (None, None, None, None),
    ],
)
def test_a_late_rank_that_its_wait_for_a_core_does_not_explain_is_a_straggler(
    shares: tuple[Optional[float], ...],
) -> None:
    found = of_late_rank(*shares)

    assert found.diagnosis == "STRAGGLER"
    assert "core" not in found.why


def test_a_rank_that_is_slower_in_everything_is_said_to_wait_for_its_core() -> None:
    steps = simulate(World(slow_rank={2: 1.35}), 80)
    samples = [sample for rank, share in enumerate((0.0, 0.0, 0.4, 0.0)) for sample in waited(share, rank=rank)]

    found = next(f for f in diagnose(facts_of_ranks(steps, processes=samples)).step_time if f.diagnosis == "SLOW_RANK")

    assert found.why.endswith("; meanwhile it waited for a core 40 % of the time")


def test_what_every_step_has_comes_with_the_script_and_is_left_as_it_is() -> None:
    facts = facts_of_steps([BETWEEN] * 60, processes=waited(0.5))
    found = diagnose(facts).step_time[0]

    assert (found.diagnosis, found.severity) == ("OVERHEAD_BOUND", "critical")
    assert MEANWHILE not in found.summary


def test_waits_of_the_whole_run_do_not_explain_a_cost_that_lies_in_a_stretch_of_it() -> None:
    """A loader that sleeps in 60 of 300 steps, on a host where the training waits for a core 16 % of the time."""
    quick, slow = step_ms(input=0.3, forward=18), step_ms(input=20, forward=18)
    steps = numbered([quick] * 100 + [slow] * 60 + [quick] * 140)

    found = diagnose(facts_of_steps(steps, processes=waited(0.16))).step_time[0]

    assert found.diagnosis == "INPUT_BOUND"
    assert MEANWHILE not in found.summary
    assert "in steps 100 to 160" in found.why  # by blocks of steps
