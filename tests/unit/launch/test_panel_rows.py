"""Tests the panel's rows as the launcher has them: asked for at a pace, kept standing, unable to drive the terminal."""

from __future__ import annotations

from typing import Optional

from traceml.launch.collector import Answer
from traceml.launch.terminal.panel import Panel
from traceml.schema.panel import PanelRequest

ROOM = PanelRequest(80, 8)


class Collector:
    """A fake of the keeper's door: what it was asked, and what it says next."""

    def __init__(self) -> None:
        self.asked: list[PanelRequest] = []
        self.next: Optional[tuple[str, ...]] = None
        self.fds: tuple[int, ...] = ()

    def ask_panel(self, request: PanelRequest) -> bool:
        self.asked.append(request)
        return True

    def answer(self) -> Answer:
        return Answer(panel=self.next)


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Panel, Collector, Clock]:
    collector, clock = Collector(), Clock()
    return Panel(collector, title="starting", clock=clock), collector, clock


def test_it_is_asked_for_twice_a_second() -> None:
    panel, collector, clock = made()
    for _ in range(100):
        panel.ask(ROOM)
        clock.now += 0.1

    assert 19 <= len(collector.asked) <= 21


def test_another_room_is_asked_for_at_once() -> None:
    panel, collector, _ = made()
    panel.ask(ROOM)
    panel.ask(ROOM._replace(columns=100))

    assert [request.columns for request in collector.asked] == [80, 100]


def test_rows_stand_until_there_are_others() -> None:
    panel, collector, clock = made()
    assert list(panel.rows) == ["starting"]
    collector.next = ("one", "two")
    assert panel.hear()
    collector.next = None
    assert not panel.hear()
    clock.now += 4

    assert panel.rows == ("one", "two")


def test_a_silent_collector_is_told_with_its_age_above_what_was_last_known() -> None:
    panel, collector, clock = made()
    collector.next = ("one", "two")
    panel.hear()
    clock.now += 14

    assert panel.rows == (" TraceML: no word from the collector for 14 s", "two")
    panel.wake()
    assert panel.rows == ("one", "two")


def test_of_a_row_only_text_and_colours_reach_the_terminal() -> None:
    panel, collector, _ = made()
    collector.next = ("\x1b[31mred\x1b[0m\x1b[2J\x1b]0;t\x07\x1bc\r\n\x9b2J",)
    panel.hear()

    assert panel.rows == ("\x1b[31mred\x1b[0m[2J]0;tc2J",)
