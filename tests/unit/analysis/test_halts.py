"""Holds the builder to what a stopped or traced process means: the steps of that time are left out, no others are."""

from __future__ import annotations

from array import array

from tests.edge_script import EdgeScript, started_builder
from traceml.analysis.gather import RankWindow, facts_of
from traceml.analysis.steps import StepBuilder
from traceml.schema.records import HALTED, Halt, StepRecord
from traceml.wire.ring import EdgeBatch


def _at(script: EdgeScript, ms: float) -> int:
    """Milliseconds behind the first edge, on the records' clock."""
    return int((100.0 + ms / 1000) * 1e9)


def _five() -> EdgeScript:
    """Steps of 10 ms: they end 10, 20, ... ms behind the first edge; the startup lies before."""
    script = EdgeScript()
    for _ in range(5):
        script.step()
    return script


def _taken(script: EdgeScript, *halts: Halt) -> tuple[StepBuilder, list[StepRecord], list[tuple[str, int, str]]]:
    builder = started_builder()
    for halt in halts:
        builder.learn(halt)
    builder.feed(script.batch())
    taken = builder.take()
    return builder, list(taken.steps), [(event.kind, event.step, event.text) for event in taken.events]


def _halted(steps: list[StepRecord]) -> list[int]:
    return [step.step for step in steps if step.failed_in == HALTED]


def test_the_step_in_which_the_process_was_stopped_is_left_out() -> None:
    script = _five()

    builder, steps, events = _taken(script, Halt(_at(script, 25), _at(script, 28), "stopped"))

    assert _halted(steps) == [3]
    assert events == [("halted", 3, "stopped")]
    assert (builder.state.num_halted, builder.state.num_failed) == (1, 0)


def test_steps_are_left_out_as_long_as_a_debugger_traces() -> None:
    script = _five()

    builder, steps, events = _taken(script, Halt(_at(script, 25), None, "traced"))

    assert _halted(steps) == [3, 4, 5]
    assert events == [("halted", 3, "traced")]
    assert builder.live(_nothing(script), now_ns=0, alive=True).halted == "traced"


def test_a_halt_that_ended_covers_no_later_step() -> None:
    script = _five()
    open_halt = Halt(_at(script, 25), None, "traced")

    _, steps, _ = _taken(script, open_halt, Halt(open_halt.since_ns, _at(script, 35), "traced"))

    assert _halted(steps) == [3, 4]


def test_a_step_that_raised_while_it_was_traced_stays_a_failed_one() -> None:
    script = EdgeScript().step().begin().work().end(failed=True)

    builder, steps, _ = _taken(script, Halt(_at(script, 12), _at(script, 13), "traced"))

    assert [step.failed_in for step in steps] == [None, "in_step"]
    assert (builder.state.num_halted, builder.state.num_failed) == (0, 1)


def test_halts_before_the_first_step_mark_none() -> None:
    script = _five()

    _, steps, events = _taken(script, Halt(_at(script, -500), _at(script, -400), "traced"))

    assert (_halted(steps), events) == ([], [])


def test_inferred_steps_are_left_out_too() -> None:
    script = EdgeScript(infers=True).iterator()
    for _ in range(5):
        script.fetch(1).learn().update()
    builder = script.builder()
    builder.learn(Halt(_at(script, 15), _at(script, 16), "stopped"))
    builder.feed(script.batch())

    steps = [*builder.take().steps, *builder.finish(_nothing(script), end_ns=int(script.now * 1e9)).steps]

    assert _halted(steps) == [2]


def test_what_is_left_out_is_neither_steady_nor_failed() -> None:
    script = _five()
    builder, steps, _ = _taken(script, Halt(_at(script, 25), _at(script, 28), "stopped"))

    rank = facts_of([RankWindow(builder.state, tuple(steps))]).ranks[0]

    assert (rank.num_steps, rank.num_halted, rank.num_failed) == (5, 1, 0)
    assert rank.num_steady + rank.num_warmup == 4


def _nothing(script: EdgeScript) -> EdgeBatch:
    return EdgeBatch(len(script.codes), array("d"), b"", 0)
