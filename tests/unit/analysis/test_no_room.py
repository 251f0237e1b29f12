"""Shows that an allocation that found no room is an event of its step, also where the script caught what it raised."""

from __future__ import annotations

from dataclasses import replace

from tests.edge_script import START_S, EdgeScript, started_builder
from traceml.schema.records import Event
from traceml.schema.room import OutOfMemory

IN_SECOND_NS = int((START_S + 0.015) * 1e9)  # of steps of 11 ms each
NO_ROOM = OutOfMemory(0, IN_SECOND_NS, 2, "forward", 0, 2 << 30, 80 << 30, 1 << 30)


def script() -> EdgeScript:
    made = EdgeScript().iterator()
    for _ in range(4):
        made.fetch(1).step()
    return made


def of_no_room(events: tuple[Event, ...]) -> list[Event]:
    return [event for event in events if event.kind == "out of memory"]


def test_an_allocation_without_room_is_an_event_of_the_step_it_came_in_with_its_size_and_phase() -> None:
    builder = started_builder()
    builder.learn(NO_ROOM)
    builder.feed(script().batch())

    (event,) = of_no_room(builder.take().events)

    assert (event.rank, event.step, event.text) == (0, 2, "2.0 GiB wanted in forward")


def test_a_restarted_reader_tells_it_once_and_one_that_comes_later_too() -> None:
    first = started_builder()
    first.learn(NO_ROOM)
    first.feed(script().batch())
    taken = first.take()
    again = started_builder(taken.cursor)
    again.learn(NO_ROOM)
    again.learn(replace(NO_ROOM, at_ns=IN_SECOND_NS + 35_000_000))
    again.feed(script().fetch(1).step().batch(again.position))

    assert [event.step for event in of_no_room(taken.events)] == [2]
    assert [event.step for event in of_no_room(again.take().events)] == [5]
