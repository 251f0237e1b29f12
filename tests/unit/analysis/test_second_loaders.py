"""Holds the builder to design section 3 where a step is fed by more than one loader, or an epoch is a single batch."""

from __future__ import annotations

from typing import Optional

from tests.edge_script import EdgeScript
from traceml.schema import phases
from traceml.schema.records import LoaderInfo, StepRecord
from traceml.wire import edges

MS = 1_000_000


def ms(record: StepRecord, *names: str) -> list[Optional[float]]:
    found = [record.phase_ns[phases.PHASE_INDEX[name]] for name in names]
    return [None if ns is None else round(ns / MS, 3) for ns in found]


def test_a_second_loader_that_is_fetched_inside_the_step_is_input() -> None:
    script = EdgeScript().iterator(loader=1).iterator(loader=2)
    for _ in range(4):
        script.switch(loader=1).fetch(5).begin().switch(loader=2).fetch(7).work().end()

    assert [ms(step, "input", "eval") for step in script.steps()] == [[12, None]] * 4


def test_a_loader_that_is_begun_anew_for_each_step_is_input_whichever_is_fetched_last() -> None:
    script = EdgeScript().iterator(loader=1)
    for number in range(1, 6):
        script.begin().iterator(loader=2, epoch=number).fetch(7).switch(loader=1).fetch(5).work().end()

    assert [ms(step, "input", "eval") for step in script.steps()] == [[12, None]] * 5


def test_a_teachers_forward_before_the_second_loader_is_fetched_is_no_evaluation() -> None:
    script = EdgeScript().iterator(loader=1).iterator(loader=2)
    for _ in range(4):
        script.switch(loader=1).fetch(5).begin().phase(edges.FORWARD_NO_GRAD, 2)
        script.switch(loader=2).fetch(7).phase(edges.FORWARD_NO_GRAD, 2).work().end()

    assert [ms(step, "input", "eval", "forward") for step in script.steps()] == [[12, None, 7]] * 4


def test_an_evaluation_at_the_beginning_of_a_step_is_eval_and_what_the_step_was_given_is_input() -> None:
    script = EdgeScript().iterator(loader=1)
    for number in range(1, 5):
        script.switch(loader=1).fetch(5).begin().iterator(loader=2, epoch=number)
        for _ in range(3):
            script.fetch(7).phase(edges.FORWARD_NO_GRAD, 2)
        script.exhaust(0).work().end()

    steps = script.steps()

    assert ms(steps[2], "input") == [5]
    assert ms(steps[2], "eval", "forward") == [27, 3]


def test_an_evaluation_of_one_batch_behind_each_step_stays_eval() -> None:
    script = EdgeScript().iterator(loader=1)
    for number in range(1, 6):
        script.switch(loader=1).fetch(5).step().iterator(loader=2, epoch=number).fetch(7).phase(edges.EVAL, 2)

    assert [ms(step, "input", "eval") for step in script.steps()[1:]] == [[5, 9]] * 4


def test_a_batch_that_is_looked_at_once_an_epoch_is_no_input() -> None:
    script = EdgeScript()
    for number in range(1, 4):
        script.iterator(loader=2, epoch=number).fetch(7).iterator(loader=1, epoch=number)
        for _ in range(3):
            script.fetch(5).step()

    assert [ms(step, "input", "eval") for step in script.steps()[3:]] == [[5, 7], [5, None], [5, None]] * 2


def _epoch_starts(info: LoaderInfo, num_batches: int) -> list[float]:
    script = EdgeScript()
    for number in range(1, 7):
        script.iterator(loader=1, epoch=number, ms=1)
        for _ in range(num_batches):
            script.fetch(20).step()
    builder = script.builder()
    builder.learn(info)
    builder.feed(script.batch())
    return [step.epoch_start_ns / MS for step in builder.take().steps]


def test_where_each_epoch_is_one_batch_its_wait_is_ordinary_input() -> None:
    assert sum(_epoch_starts(LoaderInfo(1, num_workers=0, batch_size=64, num_samples=60), 1)) == 0
    assert sum(_epoch_starts(LoaderInfo(1), 1)[1:]) == 0


def test_workers_that_start_for_each_epoch_of_one_batch_are_an_epoch_start() -> None:
    starting = LoaderInfo(1, num_workers=2, batch_size=64, num_samples=60, persistent_workers=False)

    assert round(_epoch_starts(starting, 1)[2]) == 21


def test_epochs_of_several_batches_start_as_before() -> None:
    assert [round(ms) for ms in _epoch_starts(LoaderInfo(1, num_workers=0, batch_size=8, num_samples=24), 3)[3:6]] == [
        1,
        0,
        0,
    ]
