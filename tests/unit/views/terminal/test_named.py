"""Holds bar and legend to the part that the verdict names, at every size of both faces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.views.report_builders import report_of
from tests.unit.views.terminal.panels import plain, seen
from tests.unit.views.terminal.scenes import NOW_S, sight_of
from traceml.report.contract import FindingInfo, Report, VerdictInfo
from traceml.schema.panel import PanelRequest
from traceml.views.terminal import sight
from traceml.views.terminal.bar import SHORT, label_of
from traceml.views.terminal.palette import sign_of
from traceml.views.terminal.panel import panel
from traceml.views.terminal.scene import Asked, Scene

NAMED = ("between_steps", "in_step", "eval", "checkpoint", "gc", "compile", "region:augment", "input", "h2d", "sync")
OTHERS = {"input": 1.0, "forward": 7.0, "backward": 8.0, "optimizer": 5.5, "region:b": 2.0, "region:c": 1.5}
SIZES = ((40, 12), (40, 15), (40, 20), (59, 24), (60, 24), (80, 24), (100, 30), (120, 40), (200, 50))
PANELS = ((40, 4), (80, 4), (80, 8), (120, 8), (120, 11), (200, 11))


def blaming(phase: str, ms: float) -> Report:
    """A run whose verdict names a phase."""
    verdict = VerdictInfo("OVERHEAD_BOUND", "warning", f"Much of each step is {phase}.", "it is", "look at it", None)
    finding = FindingInfo("OVERHEAD_BOUND", "warning", verdict.summary, "it is", "look at it", "", (0,), (phase,))
    report = report_of(verdict=verdict, mean_ms={**OTHERS, phase: ms})
    return replace(report, step_time=replace(report.step_time, findings=(finding,)))


def is_named(rows: list[str], phase: str) -> bool:
    """Whether a row calls the phase by its name, behind its own sign."""
    names = {label_of(phase), SHORT.get(phase, label_of(phase))}
    sign = sign_of(phase).block
    return any(f"{sign} {name}" in row for row in rows for name in names)


@pytest.mark.parametrize("ms", [20.5, 6.0])  # most of the step, and a part among others
@pytest.mark.parametrize("phase", NAMED)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_full_screens_bar_has_the_part_that_the_verdict_names(
    phase: str, ms: float, width: int, height: int
) -> None:
    shown = sight_of(Scene(Asked(), blaming(phase, ms), taken_s=NOW_S))
    rows = ["".join(text for text, _ in row) for row in sight.screen(shown, width, height)]
    drawn = max(rows, key=lambda row: sum(row.count(glyph) for glyph in "█▓▒▞░▐"))

    assert sign_of(phase).block in drawn
    assert is_named(rows, phase)


@pytest.mark.parametrize("ms", [20.5, 6.0])
@pytest.mark.parametrize("phase", NAMED)
@pytest.mark.parametrize(("columns", "num_rows"), PANELS)
def test_the_panels_bar_has_the_part_that_the_verdict_names(phase: str, ms: float, columns: int, num_rows: int) -> None:
    rows = [plain(row) for row in panel(PanelRequest(columns, num_rows), blaming(phase, ms), {}, seen("held")[1])]

    assert is_named(rows, phase)
