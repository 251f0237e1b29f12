"""Tests that the panel is drawn anew at each question, its figures only when they cost little beside the time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Optional

import pytest

from tests.builders import rank_state
from tests.unit.views.terminal.panels import plain, seen
from traceml.cli.drawing import Drawing
from traceml.errors import RunError
from traceml.report.contract import Report
from traceml.report.series import Point, Series
from traceml.schema.current import Current
from traceml.schema.panel import PanelRequest
from traceml.schema.records import LiveSlot

REQUEST = PanelRequest(120, 11)
SECOND = 1_000_000_000


@dataclass
class World:
    """A run whose time and costs are set here, and what was asked of it."""

    now_s: float = 1000.0
    step: int = 1204
    cpu_s: float = 0.0
    report_s: float = 0.05  # what building one costs
    series_s: float = 0.001
    report: Report = field(default_factory=lambda: replaced(seen("input_bound")[0]))
    fails: bool = False
    halted: str = ""
    built: list[float] = field(default_factory=list)
    read: list[tuple[tuple[str, ...], Optional[int], tuple[int, int]]] = field(default_factory=list)

    def build(self) -> Report:
        self.built.append(self.now_s)
        self.cpu_s += self.report_s
        if self.fails:
            raise RunError("The disk is full.", slug="no-database")
        return self.report

    def series(self, metrics: tuple[str, ...], rank: Optional[int], window: tuple[int, int]) -> dict[str, Series]:
        self.read.append((metrics, rank, window))
        self.cpu_s += self.series_s
        points = tuple(Point(at, at, 80.0, 80.0, 80.0) for at in range(window[0], window[1] + 1))
        return {metric: Series(metric, "ms", {0: points}) for metric in metrics}

    def current(self) -> Current:
        slot = LiveSlot(0, self.step, "forward", 0, 0, alive=True, halted=self.halted)
        return Current((slot,), (replace(rank_state(), last_step=self.step or None),))

    def drawing(self) -> Drawing:
        return Drawing(
            self.build, self.series, self.current, clock=lambda: round(self.now_s * SECOND), cpu=lambda: self.cpu_s
        )

    def pass_time(self, drawing: Drawing, *, seconds: float) -> None:
        """Asks twice a second, as the launcher does, at 12.4 steps a second."""
        for _ in range(round(2 * seconds)):
            assert drawing.rows(REQUEST) is not None
            self.now_s += 0.5
            self.step += 6


def replaced(report: Report, **changes: Any) -> Report:
    return replace(report, run=replace(report.run, reported_at="2027-01-15T08:01:38+00:00", **changes))


@pytest.mark.parametrize("report_s", [0.001, 0.05, 0.3])
def test_figures_cost_less_than_half_a_percent_of_a_core_however_dear_they_are(report_s: float) -> None:
    world = World(report_s=report_s)

    world.pass_time(world.drawing(), seconds=240)

    assert len(world.built) >= 2
    assert world.cpu_s <= 0.004 * 240 + report_s


def test_figures_are_renewed_at_most_every_ten_seconds_once_there_is_a_verdict() -> None:
    world = World(report_s=0.001)

    world.pass_time(world.drawing(), seconds=100)

    assert min(late - early for early, late in zip(world.built, world.built[1:])) >= 10


def test_before_the_verdict_figures_follow_within_a_second_or_two() -> None:
    world = World(report=replaced(seen("waiting")[0]), report_s=0.002)

    world.pass_time(world.drawing(), seconds=20)

    assert len(world.built) >= 12


def test_the_step_is_that_of_each_question_and_the_curves_are_of_the_last_300() -> None:
    world = World()
    drawing = world.drawing()
    world.pass_time(drawing, seconds=3)

    rows = drawing.rows(REQUEST) or []

    assert "step 1,240 of 5,000 · 12.0 steps/s" in plain(rows[0])
    assert world.read[0] == (("period", "input", "allocated"), 0, (905, 1204))


def test_the_pace_is_the_trainings_own_after_a_slow_start_and_a_stop() -> None:
    world = World(step=0)
    drawing = world.drawing()
    for _ in range(24):  # 12 s of startup
        drawing.rows(REQUEST)
        world.now_s += 0.5
    world.step = 6
    world.pass_time(drawing, seconds=5)
    world.halted = "stopped"
    for _ in range(20):
        drawing.rows(REQUEST)
        world.now_s += 0.5
    world.halted = ""
    world.pass_time(drawing, seconds=3)

    assert "12.0 steps/s" in plain((drawing.rows(REQUEST) or [])[0])


def test_the_first_step_is_shown_at_once_though_figures_were_made_just_before() -> None:
    world = World(report=replaced(seen("first")[0]), step=0)
    drawing = world.drawing()
    assert any("waiting for the first step" in plain(row) for row in drawing.rows(REQUEST) or [])
    world.report, world.step, world.now_s = replaced(seen("waiting")[0]), 3, world.now_s + 60

    rows = [plain(row) for row in drawing.rows(REQUEST) or []]

    assert "3 of 8 steady steps seen." in rows[1]


def test_when_no_step_ends_any_more_it_says_for_how_long() -> None:
    world = World()
    drawing = world.drawing()
    drawing.rows(REQUEST)
    world.now_s += 14

    rows = drawing.rows(REQUEST) or []

    assert "no step for 14 s" in plain(rows[0])


def test_a_store_that_cannot_be_read_leaves_the_last_rows_standing_and_is_told_once_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(fails=True)
    drawing = world.drawing()

    rows = []
    for _ in range(240):
        rows.append(drawing.rows(REQUEST))
        world.now_s += 0.5

    assert set(map(type, rows)) == {type(None)}
    assert capsys.readouterr().err == "no panel: The disk is full.\n"
    assert world.cpu_s <= 0.004 * 120 + world.report_s


def test_figures_that_cannot_be_renewed_stand_on(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    drawing = world.drawing()
    world.pass_time(drawing, seconds=5)
    world.fails = True

    rows = []
    for _ in range(160):
        rows.append(drawing.rows(REQUEST))
        world.now_s += 0.5

    assert rows.count(None) <= 5  # the questions at which it was tried
    assert "INPUT BOUND" in plain((rows[-1] or rows[-2] or [])[1])
    assert "full" in capsys.readouterr().err


def test_a_fault_in_a_drawing_is_logged_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    world = World(report=replace(seen("input_bound")[0], step_time=None))  # type: ignore[arg-type]
    world.report = replace(world.report, run=replace(world.report.run, reported_at="2027-01-15T08:01:38+00:00"))

    assert world.drawing().rows(REQUEST) is None
    assert "Traceback" in capsys.readouterr().err
