"""Holds inferred steps to their frame: regions around the loop, the first `trace_step`, lost edges."""

from __future__ import annotations

from tests.edge_script import EdgeScript
from tests.unit.analysis.test_inference import MS, inferred, loop, plain
from traceml.wire import edges


def test_a_region_around_the_whole_loop_is_divided_among_its_steps() -> None:
    script = EdgeScript(infers=True).iterator().edge(edges.FIRST_REGION)
    for _ in range(5):
        script.fetch(20).learn().update().wait(3)

    _, steps, _ = inferred(script)

    assert [[round(ns / MS) for _, ns in step.region_ns] for step in steps[1:]] == [[3]] * 4


def test_the_first_trace_step_ends_inference_for_good() -> None:
    script = loop(3, plain)
    for _ in range(4):
        script.fetch(20).step()
    for _ in range(3):
        script.fetch(20).learn().update()

    builder, steps, _ = inferred(script)

    assert [step.num_optimizer_steps for step in steps] == [1] * 7
    assert (builder.state.inferred, builder.state.unsure) == (True, "")


def test_a_loop_with_trace_step_is_what_it_is_without_inference() -> None:
    def loop_of(script: EdgeScript) -> EdgeScript:
        script.wait(3).iterator().fetch(30).fetch(30).wait(5).iterator(epoch=2)
        for _ in range(5):
            script.fetch(20).wait(1).step().wait(4)
        return script

    with_it, without = loop_of(EdgeScript(infers=True)), loop_of(EdgeScript())

    assert with_it.built()[1:] == without.built()[1:]


def test_a_gap_costs_the_steps_in_it_and_says_how_many() -> None:
    script = loop(20, plain)
    cut = [i for i, code in enumerate(script.codes) if code == edges.OPTIMIZER][11]
    builder = script.builder()
    builder.feed(script.batch(0, 35))
    before = builder.take()

    builder.feed(script.batch(cut, num_lost=cut - 35))
    after = builder.finish(script.batch(len(script.codes)), end_ns=int(script.now * 1e9))

    numbers = [step.step for step in (*before.steps, *after.steps)]
    assert numbers[-8:] == list(range(13, 21))
    assert builder.state.num_lost_steps == 20 - len(numbers)
