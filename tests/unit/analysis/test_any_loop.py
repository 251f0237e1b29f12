"""Holds the step builder to its sums and its restarts, whatever a loop does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.edge_script import EdgeScript, started_builder
from traceml.wire import edges

ACTIONS = st.sampled_from(
    ["fetch", "look", "eval", "step", "fail", "no_grad", "gc", "region", "save", "switch", "exhaust"]
)


def wild(script: EdgeScript, actions: list[str]) -> EdgeScript:
    """A loop that does anything, in any order."""
    script.iterator()
    for number, action in enumerate(actions):
        script.wait(number % 3)
        do = {
            "fetch": lambda: script.fetch(2),
            "look": lambda: script.iterator(loader=2, epoch=number + 1).fetch(3),  # noqa: B023  # called at once
            "switch": lambda: script.switch(loader=1 + number % 2),  # noqa: B023  # called at once
            "eval": lambda: script.phase(edges.EVAL, 4),
            "exhaust": lambda: script.exhaust(1),
            "gc": lambda: script.phase(edges.GC, 1),
            "region": lambda: script.edge(edges.FIRST_REGION).wait(1),
            "save": lambda: script.phase(edges.CHECKPOINT, 2),
            "step": lambda: script.begin().work().end(),
            "fail": lambda: script.begin().work().end(failed=True),
            "no_grad": lambda: script.begin().phase(edges.FORWARD_NO_GRAD, 2).work().end(),
        }
        do[action]()
    return script


@given(st.lists(ACTIONS, max_size=60))
def test_whatever_a_loop_does_its_parts_add_up_exactly(actions: list[str]) -> None:
    script = wild(EdgeScript(), actions)
    _, taken, rest = script.built(tail_ms=3)

    total = 0
    for step in (*taken.steps, *rest.steps):
        parts = sum(ns or 0 for ns in step.phase_ns) + sum(ns for _, ns in step.region_ns)
        assert parts == step.period_ns
        total += step.period_ns
    for segment in (*taken.segments, *rest.segments):
        assert sum(ns or 0 for ns in segment.phase_ns) + sum(ns for _, ns in segment.region_ns) == segment.duration_ns
        total += segment.duration_ns
    assert total == int((script.now + 3e-3) * 1e9) - int(99.0 * 1e9)
    assert [step.step for step in (*taken.steps, *rest.steps)] == list(range(1, script.num_steps + 1))


@given(st.lists(ACTIONS, max_size=60), st.integers(1, 400), st.integers(1, 6))
def test_feeding_in_pieces_and_restarting_changes_nothing(actions: list[str], cut: int, hop: int) -> None:
    script = wild(EdgeScript(), actions)
    whole = script.steps()
    cut = min(cut, len(script.codes))

    first = started_builder()
    for start in range(0, cut, hop):
        first.feed(script.batch(start, min(cut, start + hop)))
    taken = first.take()
    second = started_builder(cursor=taken.cursor)
    second.feed(script.batch(second.position))
    rest = second.take()
    last = second.finish(script.batch(len(script.codes)), end_ns=int(script.now * 1e9))

    again = [*taken.steps, *rest.steps, *last.steps]
    assert [(s.step, s.end_ns, s.period_ns) for s in again] == [(s.step, s.end_ns, s.period_ns) for s in whole]
