"""Tests the next step for a loader that is waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional

import pytest

from tests.builders import facts_of_steps, host_samples, loader_info, rank_state, step_ms
from traceml.diagnosis.verdict import diagnose

if TYPE_CHECKING:
    from traceml.schema.records import LoaderInfo, StepRecord


def advice(step: StepRecord, loader: Optional[LoaderInfo], *, device: str = "cpu", cores: Any = None) -> str:
    """The next step for 60 steps of this kind."""
    facts = facts_of_steps(
        [step] * 60, state=rank_state(loader=loader, device=device), host=host_samples(num_cores=cores)
    )
    found = diagnose(facts).step_time[0]
    assert found.diagnosis == "INPUT_BOUND"
    return found.next


def test_without_workers_as_many_are_proposed_as_keep_up_and_one_more() -> None:
    assert (
        advice(step_ms(input=35, forward=45), loader_info(0)) == "num_workers=2 (one worker makes a batch in 35.0 ms)"
    )


def test_a_slower_loader_gets_more_workers() -> None:
    assert advice(step_ms(input=70, forward=20), loader_info(0)).startswith("num_workers=5 ")


def test_a_batch_of_an_accumulated_step_is_priced_by_itself() -> None:
    step = step_ms(input=40, forward=40, num_micro_batches=4)

    assert advice(step, loader_info(0)) == "num_workers=2 (one worker makes a batch in 10.0 ms)"


def test_no_more_workers_than_cores_are_proposed_and_why_is_said() -> None:
    said = advice(step_ms(input=90, forward=10), loader_info(0), cores=4.0)

    assert said == "num_workers=4 (one worker makes a batch in 90.0 ms; about 10 would keep up, but 4 cores allowed)"


def test_more_than_16_workers_are_never_proposed() -> None:
    assert advice(step_ms(input=99, forward=1), loader_info(0), cores=64.0).startswith("num_workers=16 ")


def test_workers_that_do_not_keep_up_get_company() -> None:
    said = advice(step_ms(input=30, forward=30), loader_info(2), cores=8.0)

    assert said == "num_workers=4 (2 deliver a batch every 60.0 ms, the rest of the work on one takes 30.0 ms)"


def test_where_the_cores_are_used_up_a_batch_must_become_cheaper() -> None:
    said = advice(step_ms(input=30, forward=30), loader_info(2), cores=2.0)

    assert said.startswith("make a batch cheaper")
    assert said.endswith(
        "there are 2 workers on 2 cores already; more help only if they wait (disk, network) rather than compute"
    )


@pytest.mark.parametrize(("input_ms", "is_too_small"), [(0.99, True), (1.01, False)])
def test_a_batch_that_is_made_faster_than_a_worker_hands_it_over_gets_no_worker(
    input_ms: float, is_too_small: bool
) -> None:
    said = advice(step_ms(input=input_ms, forward=1), loader_info(0))

    assert ("num_workers" not in said) == is_too_small
    assert said.startswith("make batches larger, or index tensors in memory") == is_too_small


def test_each_of_an_accumulated_steps_batches_is_held_against_a_hand_over() -> None:
    said = advice(step_ms(input=3.6, forward=2, num_micro_batches=4), loader_info(0))

    assert said.endswith("a batch takes 0.900 ms, less than handing it over from a worker costs")


def test_workers_that_are_there_already_stay_whatever_a_batch_takes() -> None:
    said = advice(step_ms(input=0.9, forward=0.9), loader_info(2), cores=8.0)

    assert said.startswith("num_workers=4 ")


def test_many_workers_are_not_said_to_fill_cores_that_are_not_known() -> None:
    said = advice(step_ms(input=30, forward=30), loader_info(16))

    assert said.endswith("there are 16 workers already")


def test_a_loader_that_is_not_known_gets_no_settings() -> None:
    said = advice(step_ms(input=30, forward=30), None)

    assert "num_workers" not in said
    assert "not known" in said


@pytest.mark.parametrize(
    ("device", "pinned", "is_proposed"),
    [("cuda:0", False, True), ("cuda:0", True, False), ("cuda:0", None, False), ("cpu", False, False)],
)
def test_pinned_memory_is_proposed_beside_a_device_only(device: str, pinned: Optional[bool], is_proposed: bool) -> None:
    said = advice(step_ms(input=30, forward=30), loader_info(0, pin_memory=pinned), device=device)

    assert ("pin_memory=True" in said) == is_proposed


def test_waits_at_the_start_of_short_epochs_ask_for_workers_that_stay() -> None:
    starts = step_ms(input=300, epoch_start=299, forward=10)
    facts = facts_of_steps(
        [starts, *[step_ms(input=0.1, forward=10)] * 3] * 20, state=rank_state(loader=loader_info(2))
    )

    found = diagnose(facts).step_time[0]

    assert found.diagnosis == "OVERHEAD_BOUND"
    assert found.next.startswith("persistent_workers=True")


def test_an_iterable_dataset_is_to_be_sharded_before_it_gets_workers() -> None:
    loader = replace(loader_info(0), is_iterable=True)
    found = diagnose(facts_of_steps([step_ms(input=30, forward=20)] * 40, state=rank_state(loader=loader))).step_time[0]

    assert found.next.startswith("num_workers=")
    assert "get_worker_info" in found.next


def test_a_sampler_of_the_scripts_own_is_looked_at_first() -> None:
    loader = replace(loader_info(0), has_own_sampler=True)
    found = diagnose(facts_of_steps([step_ms(input=30, forward=20)] * 40, state=rank_state(loader=loader))).step_time[0]

    assert found.next.startswith("look at the script's own sampler")
