"""Holds steps that are divided by a plan to those that are divided edge by edge: the same, to the nanosecond."""

from __future__ import annotations

from array import array
from typing import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.edge_script import EdgeScript
from traceml.analysis.steps import StepBuilder, Taken
from traceml.schema.records import Halt, LoaderInfo, RankIdentity
from traceml.wire import edges
from traceml.wire.ring import EdgeBatch

CLOSE_REGION = edges.FIRST_REGION + 2 + edges.CLOSE
CLOSE_OPTIMIZER = edges.OPTIMIZER + edges.CLOSE

#: What a training does again and again: a name, and how its step is written.
STEPS: dict[str, Callable[[EdgeScript, float], object]] = {
    "plain": lambda s, ms: s.fetch(ms).wait(1).step(ms),
    "bare": lambda s, ms: s.wait(ms).begin().end(),
    "no loader": lambda s, ms: s.wait(1).step(ms),
    "told samples": lambda s, ms: s.fetch(ms).value(edges.SAMPLES, 8).value(edges.TOKENS, 99).step(),
    "user's number": lambda s, ms: s.fetch(1).begin().value(edges.USER_STEP, ms).work(ms).end(),
    "counted": lambda s, ms: s.fetch(1).begin().work(ms).value(edges.COUNTED_SAMPLES, 3).end(),
    "numbered": lambda s, ms: s.fetch(ms).step().value(edges.STEP_NUMBER, s.num_steps),
    "micro-batches": lambda s, ms: s.fetch(ms).begin().learn().wait(1).fetch(2).work(ms).end(),
    "batches first": lambda s, ms: s.fetch(ms).fetch(2).value(edges.SAMPLES, 4).begin().learn().work(ms).end(),
    "prefetches": lambda s, ms: s.begin().work(ms).fetch(1).end(),
    "synced": lambda s, ms: synced(s.fetch(ms).begin().phase(edges.FORWARD, 2), ms).end(),
    "synced twice": lambda s, ms: synced(synced(s.fetch(1).begin().phase(edges.FORWARD, 1), ms), 2).end(),
    "synced in a fetch": lambda s, ms: (
        s.edge(edges.INPUT).phase(edges.SYNC, ms).wait(1).edge(edges.INPUT + edges.CLOSE).step()
    ),
    "region": lambda s, ms: s.fetch(1).begin().edge(edges.FIRST_REGION + 2).wait(ms).work().edge(CLOSE_REGION).end(),
    "synced region": lambda s, ms: (
        synced(s.begin().edge(edges.FIRST_REGION + 2).wait(ms), 1).edge(CLOSE_REGION).work().end()
    ),
    "nested": lambda s, ms: (
        s.fetch(1).begin().edge(edges.OPTIMIZER).wait(1).learn(ms).phase(edges.OPTIMIZER, 1).edge(CLOSE_OPTIMIZER).end()
    ),
    "copy in a fetch": lambda s, ms: (
        s.edge(edges.INPUT).wait(1).phase(edges.H2D, ms).wait(1).edge(edges.INPUT + edges.CLOSE).step()
    ),
    "fetch in a fetch": lambda s, ms: s.edge(edges.INPUT).wait(1).fetch(ms).edge(edges.INPUT + edges.CLOSE).step(),
    "collection": lambda s, ms: s.fetch(1).begin().phase(edges.GC, ms).work().end(),
    "saves": lambda s, ms: s.phase(edges.CHECKPOINT, ms).fetch(1).step(),
    "evaluates": lambda s, ms: s.phase(edges.EVAL, ms).fetch(1).step(),
    "teacher": lambda s, ms: s.fetch(1).begin().phase(edges.FORWARD_NO_GRAD, ms).work().end(),
    "fails": lambda s, ms: s.fetch(1).begin().phase(edges.FORWARD, ms).edge(edges.RAISED).end(failed=True),
    "next epoch": lambda s, ms: s.exhaust(1).iterator(epoch=2, ms=1).fetch(ms).step(),
    "other loader": lambda s, ms: s.iterator(loader=2, epoch=3).fetch(ms).step(),
    "back": lambda s, ms: s.switch().fetch(ms).step(),
    "epoch's end": lambda s, ms: s.step(ms).exhaust(1),
    "no close": lambda s, ms: s.fetch(1).begin().edge(edges.FORWARD).wait(ms).end(),
    "no begin": lambda s, ms: s.fetch(ms).edge(edges.STEP_END),
    "left over": lambda s, ms: s.edge(edges.FIRST_REGION).wait(ms).begin().work().end(),
    "torn stamp": lambda s, ms: s.fetch(ms).value(edges.FORWARD, 1.0).step(),
    "torn value": lambda s, ms: s.fetch(ms).value(edges.SAMPLES, -ms).step(),
    "never": lambda s, ms: s.fetch(ms).begin().value(edges.NEVER, 0.0).work().end(),
}


def synced(script: EdgeScript, ms: float) -> EdgeScript:
    return script.edge(edges.BACKWARD).wait(ms).phase(edges.SYNC, ms).edge(edges.BACKWARD + edges.CLOSE)


def builder() -> StepBuilder:
    found = EdgeScript().builder()
    found.learn(LoaderInfo(1, batch_size=4, num_samples=100, drop_last=False))
    return found


def fed(script: EdgeScript, hop: int) -> tuple[StepBuilder, Taken, Taken]:
    """A builder that was fed so many edges at once, what it took, and what its finish took."""
    found = builder()
    for start in range(0, len(script.codes), hop):
        found.feed(script.batch(start, start + hop))
    taken = found.take()
    end = EdgeBatch(len(script.codes), array("d"), b"", 0)
    return found, taken, found.finish(end, end_ns=int(script.now * 1e9) + 1_000)


def loop(stretches: list[tuple[str, int, float]]) -> EdgeScript:
    script = EdgeScript().iterator()
    for name, num_steps, ms in stretches:
        for number in range(num_steps):
            STEPS[name](script, ms + number % 3)
    return script


STRETCHES = st.lists(
    st.tuples(st.sampled_from([*STEPS, "plain", "synced"]), st.integers(1, 6), st.floats(0, 80)), max_size=14
)


@given(STRETCHES, st.integers(2, 400))
def test_a_step_by_plan_is_what_it_is_edge_by_edge(stretches: list[tuple[str, int, float]], hop: int) -> None:
    script = loop(stretches)

    planned, *of_planned = fed(script, hop)
    looked_at, *of_looked_at = fed(script, 1)

    assert of_planned == of_looked_at
    assert planned.state == looked_at.state
    assert looked_at.num_repeated == 0


def test_of_a_loop_that_repeats_itself_all_but_the_first_steps_go_by_plan() -> None:
    for name in ("plain", "no loader", "told samples", "micro-batches", "synced", "synced twice", "region", "nested"):
        found, taken, _ = fed(loop([("plain", 3, 1), (name, 40, 2)]), 10_000)

        assert (name, len(taken.steps)) == (name, 43)
        assert (name, found.num_repeated >= 39) == (name, True)


def test_what_hangs_on_more_than_the_step_itself_never_goes_by_plan() -> None:
    for name in ("evaluates", "teacher", "fails", "next epoch", "no close", "no begin", "torn stamp", "torn value"):
        script = loop([(name, 40, 2)])

        assert (name, fed(script, 10_000)[0].num_repeated) == (name, 0)


def test_a_rank_that_says_late_who_it_is_has_its_steps_all_the_same() -> None:
    script = loop([("plain", 9, 2)])
    found = builder()
    found.feed(script.batch())
    found.learn(RankIdentity(3, 3, 4, 4711, 0))

    assert {step.rank for step in found.take().steps} == {3}


def test_steps_counted_by_hand_from_now_on_take_what_loaders_said_from_those_before() -> None:
    script = loop([("plain", 9, 2), ("counted", 9, 2)])
    _, taken, _ = fed(script, 10_000)

    assert [step.num_samples for step in taken.steps] == [None] * 9 + [3] * 9


def test_a_halt_leaves_out_the_steps_that_it_touches_and_no_others() -> None:
    script = loop([("plain", 12, 8)])
    found = builder()
    found.feed(script.batch())
    ends = [step.end_ns for step in fed(script, 1)[1].steps]
    found.learn(Halt(ends[5] + 1, ends[6] - 1, "stopped"))

    assert [step.step for step in found.take().steps if step.failed_in] == [7]
