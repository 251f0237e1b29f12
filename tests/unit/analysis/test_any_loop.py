"""Holds the step builder to its sums and its restarts, whatever a loop does."""

from __future__ import annotations

from typing import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.edge_script import EdgeScript
from traceml.wire import edges

ACTIONS = st.sampled_from(
    ["fetch", "look", "eval", "step", "fail", "no_grad", "gc", "region", "save", "switch", "exhaust"]
)


UNTRACED = st.sampled_from(
    [
        "fetch",
        "look",
        "eval",
        "gc",
        "region",
        "region_end",
        "save",
        "switch",
        "exhaust",
        "learn",
        "act",
        "update",
        "critic",
        "nested",
        "in_backward",
        "skip",
        "raise",
    ]
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


def wild_untraced(script: EdgeScript, actions: list[str], *, step_at: int = -1) -> EdgeScript:
    """A loop without trace_step that does anything, in any order; perhaps with one from an action on."""
    script.iterator()
    for number, action in enumerate(actions):
        script.wait(number % 3)
        if number == step_at:
            script.begin().work().end()
        do: dict[str, Callable[[], object]] = {
            "fetch": lambda: script.fetch(2),
            "look": lambda: script.iterator(loader=2, epoch=number + 2).fetch(3),  # noqa: B023  # called at once
            "switch": lambda: script.switch(loader=1 + number % 2),  # noqa: B023  # called at once
            "eval": lambda: script.phase(edges.EVAL, 4),
            "exhaust": lambda: script.exhaust(1),
            "gc": lambda: script.phase(edges.GC, 1),
            "region": lambda: script.edge(edges.FIRST_REGION).wait(1),
            "region_end": lambda: script.edge(edges.FIRST_REGION + edges.CLOSE).wait(1),
            "save": lambda: script.phase(edges.CHECKPOINT, 2),
            "learn": script.learn,
            "act": lambda: script.phase(edges.FORWARD, 1),
            "update": script.update,
            "critic": lambda: script.update(optimizer=2),
            "nested": lambda: (
                script.edge(edges.OPTIMIZER)
                .learn()
                .update(1, 3)
                .phase(edges.GC, 1)
                .edge(edges.OPTIMIZER + edges.CLOSE)
                .updated(4)
            ),
            "in_backward": lambda: (
                script.edge(edges.BACKWARD).update(1, 5).update(1, 6).edge(edges.BACKWARD + edges.CLOSE)
            ),
            "skip": script.skip,
            "raise": lambda: script.edge(edges.OPTIMIZER).wait(1),
        }
        do[action]()
    return script


@given(st.lists(ACTIONS, max_size=60))
def test_whatever_a_loop_does_its_parts_add_up_exactly(actions: list[str]) -> None:
    script = wild(EdgeScript(), actions)
    num_steps = add_up(script)

    assert num_steps == script.num_steps


@given(st.lists(UNTRACED, max_size=60), st.integers(-1, 80))
def test_whatever_an_untraced_loop_does_its_parts_add_up_exactly(actions: list[str], step_at: int) -> None:
    add_up(wild_untraced(EdgeScript(infers=True), actions, step_at=step_at))


def add_up(script: EdgeScript) -> int:
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
    num_steps = len(taken.steps) + len(rest.steps)
    assert [step.step for step in (*taken.steps, *rest.steps)] == list(range(1, num_steps + 1))
    return num_steps


@given(st.lists(ACTIONS, max_size=60), st.integers(1, 400), st.integers(1, 6))
def test_feeding_in_pieces_and_restarting_changes_nothing(actions: list[str], cut: int, hop: int) -> None:
    restart(wild(EdgeScript(), actions), cut, hop)


@given(st.lists(UNTRACED, max_size=60), st.integers(1, 400), st.integers(1, 6), st.integers(-1, 80))
def test_feeding_in_pieces_and_restarting_changes_nothing_in_an_untraced_loop(
    actions: list[str], cut: int, hop: int, step_at: int
) -> None:
    restart(wild_untraced(EdgeScript(infers=True), actions, step_at=step_at), cut, hop)


def restart(script: EdgeScript, cut: int, hop: int) -> None:
    whole_builder, taken, rest = script.built()
    whole = [*taken.steps, *rest.steps]
    cut = min(cut, len(script.codes))

    first = script.builder()
    for start in range(0, cut, hop):
        first.feed(script.batch(start, min(cut, start + hop)))
    taken = first.take()
    second = script.builder(cursor=taken.cursor)
    second.feed(script.batch(second.position))
    more = second.take()
    last = second.finish(script.batch(len(script.codes)), end_ns=int(script.now * 1e9))

    again = [*taken.steps, *more.steps, *last.steps]
    assert [(s.step, s.end_ns, s.period_ns) for s in again] == [(s.step, s.end_ns, s.period_ns) for s in whole]
    assert [s.num_optimizer_steps for s in again] == [s.num_optimizer_steps for s in whole]
    assert (second.state.inferred, second.state.unsure) == (whole_builder.state.inferred, whole_builder.state.unsure)


@given(
    st.integers(0, 9),
    st.lists(st.sampled_from(["fetch", "update", "critic", "exhaust"]), max_size=6),
    st.integers(0, 30),
    st.lists(UNTRACED, max_size=30),
    st.integers(1, 1200),
    st.integers(1, 6),
)
def test_a_restart_changes_nothing_where_a_loop_goes_on_without_its_loader(
    num_loaded: int, before: list[str], num_more: int, after: list[str], cut: int, hop: int
) -> None:
    actions = ["fetch", "learn", "update"] * num_loaded + before + ["learn", "update"] * num_more + after
    add_up(wild_untraced(EdgeScript(infers=True), actions))
    restart(wild_untraced(EdgeScript(infers=True), actions), cut, hop)


def test_a_restart_between_an_exhausted_loader_and_the_work_on_its_next_batch_changes_nothing() -> None:
    actions = ["fetch", "learn", "update"] + ["learn", "update"] * 14 + ["fetch", "learn", "update"] * 2
    script = wild_untraced(EdgeScript(infers=True), [*actions, "exhaust", "update", "update", "learn", "update"])

    for cut in range(1, len(script.codes) + 1):
        restart(script, cut, 1)
