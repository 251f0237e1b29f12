"""Holds what messages of the compiler become: counts of the rank, and an event for each recompilation, once."""

from __future__ import annotations

from dataclasses import replace

from tests.edge_script import START_S, EdgeScript, started_builder
from traceml.schema.records import Compilation, StepFailure
from traceml.wire import codec, edges

IN_SECOND_NS = int((START_S + 0.15) * 1e9)  # of `script`'s steps, 96 ms each
AGAIN = Compilation(
    2, IN_SECOND_NS, 90_000_000, 2, 1, is_again=True, function="forward", reason="size mismatch, actual 5"
)
EAGER = Compilation(2, int((START_S + 0.195) * 1e9), 0, 2, 1, is_eager=True, reason="size mismatch, actual 9")


def script() -> EdgeScript:
    made = EdgeScript().iterator()
    for _ in range(3):
        made.fetch(1).begin().edge(edges.FORWARD).phase(edges.COMPILE, 90).edge(edges.FORWARD + edges.CLOSE)
        made.phase(edges.BACKWARD, 5).end()
    return made


def test_a_recompilation_is_an_event_with_its_reason_and_the_compilers_end_another() -> None:
    builder = started_builder()
    for body in (replace(AGAIN, step=1, is_again=False), AGAIN, EAGER):
        builder.learn(body)
    builder.feed(script().batch())

    events = [event for event in builder.take().events if event.kind in ("recompilation", "now eager")]

    assert [(e.kind, e.step, e.duration_ns, e.text) for e in events] == [
        ("recompilation", 2, 90_000_000, "forward: size mismatch, actual 5"),
        ("now eager", 2, None, "size mismatch, actual 9"),
    ]
    assert (builder.state.num_compilations, builder.state.num_recompilations) == (2, 1)
    assert builder.take().events == ()


def test_a_restarted_reader_tells_no_recompilation_twice_and_keeps_the_counts() -> None:
    first = started_builder()
    first.learn(AGAIN)
    first.feed(script().batch())
    cursor = first.take().cursor
    again = started_builder(cursor)
    again.learn(AGAIN)
    again.learn(replace(AGAIN, at_ns=IN_SECOND_NS + 1_000_000_000))
    more = script().fetch(1).step().wait(1000).fetch(1).step()
    again.feed(more.batch(again.position))

    assert [event.step for event in again.take().events if event.kind == "recompilation"] == [5]
    assert again.state.num_recompilations == 1


def test_messages_name_the_right_step_of_a_run_that_begins_inferred() -> None:
    made = EdgeScript(infers=True).iterator()
    for _ in range(3):
        made.fetch(10).learn().update()
    made.fetch(10).learn().update().fetch(10)
    for failed in (False, True):
        made.begin().work().wait(10).end(failed=failed)
    builder = made.builder()
    at_ns = int(made.now * 1e9) - 1_000_000  # in the second traced step, which is the recorder's step 2
    builder.learn(replace(AGAIN, at_ns=at_ns))
    builder.learn(StepFailure(2, "ValueError"))  # both read before the edges, as the collector does
    builder.feed(made.batch())

    events = builder.take().events

    assert [(e.kind, e.step) for e in events] == [("recompilation", 6), ("failed step", 6)]
    assert events[1].text.startswith("ValueError")


def test_a_compilation_survives_its_frame() -> None:
    found = codec.decode_at(codec.encode(AGAIN, 7), 0)

    assert found is not None
    assert found[0] == codec.Message(7, AGAIN)
