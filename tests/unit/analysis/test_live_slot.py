"""Shows what is said of a rank at this moment: its open phase, the step that is being measured, whose wait it is."""

from __future__ import annotations

import pytest

from tests.edge_script import EdgeScript
from traceml.schema.records import LiveSlot
from traceml.wire import edges

CLOSE = edges.CLOSE


def inferred(num_steps: int) -> EdgeScript:
    script = EdgeScript(infers=True).iterator()
    for _ in range(num_steps):
        script.fetch(2).learn().update()
    return script


def marked(num_steps: int) -> EdgeScript:
    script = EdgeScript().iterator()
    for _ in range(num_steps):
        script.fetch(2).step()
    return script


def live(script: EdgeScript, published: int) -> LiveSlot:
    builder = script.builder()
    builder.feed(script.batch(0, published))
    return builder.live(script.batch(published), now_ns=int(script.now * 1e9), alive=True)


@pytest.mark.parametrize("script", [inferred(5), marked(5)])
def test_behind_an_exhausted_loader_a_rank_is_between_its_steps(script: EdgeScript) -> None:
    published = len(script.codes)
    script.exhaust(1).wait(9_000)

    slot = live(script, published)
    assert (slot.phase, slot.step) == ("between_steps", 6)
    assert slot.since_ns == pytest.approx((script.now - 9) * 1e9, abs=1e3)


def test_a_collection_that_an_exhausting_fetch_left_open_is_over_with_it() -> None:
    script = marked(3)
    published = len(script.codes)
    script.edge(edges.INPUT).edge(edges.GC).wait(1).edge(edges.CLOSE_NO_BATCH)

    assert live(script, published).phase == "between_steps"


@pytest.mark.parametrize("num_optimizers", [1, 2])
def test_a_fetch_behind_the_usual_updates_is_the_next_steps_though_nothing_has_ended_the_one_before(
    num_optimizers: int,
) -> None:
    script = EdgeScript(infers=True).iterator()
    for _ in range(5):
        script.fetch(2)
        for optimizer in range(num_optimizers):
            script.learn().update(optimizer=optimizer + 1)
    published = len(script.codes)
    waits = live(script.edge(edges.INPUT).wait(9_000), published)
    builder, _, _ = script.edge(edges.RAISED).edge(edges.CLOSE_NO_BATCH).built()

    assert (waits.step, waits.phase) == (6, "input")
    assert builder.raised == (6, "input")


def test_between_the_first_and_the_second_of_two_updates_it_is_the_same_step() -> None:
    script = EdgeScript(infers=True).iterator()
    for _ in range(5):
        script.fetch(2).learn().update(optimizer=1).learn().update(optimizer=2)
    script.fetch(2).learn().update(optimizer=1)

    assert live(script.edge(edges.FORWARD).wait(9_000), len(script.codes) - 1).step == 6


@pytest.mark.parametrize(
    ("within", "is_own"),
    [((), True), ((edges.FIRST_REGION,), True), ((edges.BACKWARD,), False), ((edges.FORWARD,), False)],
)
def test_a_wait_is_the_scripts_own_where_no_phase_of_the_step_is_in_need_of_it(
    within: tuple[int, ...], is_own: bool
) -> None:
    script = marked(3)
    published = len(script.codes)
    for code in (*within, edges.SYNC):
        script.edge(code)

    slot = live(script, published)
    assert (slot.phase, slot.by_script) == ("sync", is_own)
