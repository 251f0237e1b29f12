"""Composes the full screen: every page as exactly as many rows as there are, none wider than asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Optional, Union

from traceml.schema import units
from traceml.views.terminal import head, rows
from traceml.views.terminal.head import Moment
from traceml.views.terminal.keys import help_rows, keys_line
from traceml.views.terminal.main_page import FEWEST_LINES, figures
from traceml.views.terminal.pages import layer_rows, rank_page, system_page
from traceml.views.terminal.palette import AWAITED, PLAIN
from traceml.views.terminal.tables import rule
from traceml.views.text.columns import to_ascii

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.views.terminal.follow import Follower
    from traceml.views.terminal.lines import Line
    from traceml.views.terminal.rows import Row
    from traceml.views.terminal.scene import Scene

MAIN: Final = "main"
RANKS: Final = "ranks"
SYSTEM: Final = "system"
OUTPUT: Final = "output"
LAYERS: Final = "layers"
HELP: Final = "help"
#: Pages of runs that have something for them.
NEEDS: Final = {RANKS: "ranks", LAYERS: "layers", OUTPUT: "output"}
_NEAREST: Final = str.maketrans("─←→↑↓", "-<>^v")
LEAST_COLUMNS: Final = 20
LEAST_ROWS: Final = 5

AnyRow = Union["Row", "Line"]


@dataclass(frozen=True)
class Sight:
    """What is looked at, and how."""

    scene: Scene
    name: str
    moment: Moment
    output: Optional[Follower] = None
    page: str = MAIN
    back: int = 0  # lines of output below those that are shown
    is_ascii: bool = False
    num_outputs: int = 0  # ranks whose output was kept

    @property
    def has(self) -> frozenset[str]:
        """What this run has, for the keys that need it."""
        report = self.scene.report
        found = {
            "ranks": report is not None and report.run.world_size > 1,
            "layers": report is not None and bool(report.layers),
            "output": self.output is not None and not self.output.trouble,
            "outputs": self.output is not None and not self.output.trouble and self.num_outputs > 1,
        }
        return frozenset(name for name, is_there in found.items() if is_there)


def screen(sight: Sight, width: int, height: int) -> list[AnyRow]:
    """Exactly `height` rows of at most `width` cells."""
    if width < LEAST_COLUMNS or height < LEAST_ROWS:
        return _full([[("too small", PLAIN)]], width, height)
    body = _body(sight, width, height - 1)
    age = head.age_s(sight.scene, sight.moment)
    if age is not None and sight.page != HELP:
        body = [rows.dimmed(row) if at and isinstance(row, list) else row for at, row in enumerate(body)]
    drawn = [*_full(body, width, height - 1), rows.cut(keys_line(sight.has, width), width)]
    return [_to_ascii(row, width) for row in drawn] if sight.is_ascii else drawn


def output_height(sight: Sight, width: int, height: int) -> int:
    """How many lines of output the page shows, for whoever scrolls by pages."""
    return sum(isinstance(row, tuple) for row in _body(sight, width, height - 1))


def _body(sight: Sight, width: int, height: int) -> list[AnyRow]:
    scene, report = sight.scene, sight.scene.report
    first = head.run_line(scene, sight.name, sight.moment, width)
    if sight.page == HELP:
        return [first, [], rule("keys", width), *help_rows(sight.has)]
    if sight.page == OUTPUT:
        return [first, *_output(sight, width, height - 1)]
    return [first, *_told(sight, report, width, height - 1)]


def _told(sight: Sight, report: Optional[Report], width: int, height: int) -> list[AnyRow]:
    """A page that is made of the report."""
    scene = sight.scene
    if report is None:
        awaited = head.labelled("", scene.trouble, width, 4, style=AWAITED)
        return [[], *awaited, *_output(sight, width, height - 1 - len(awaited))]
    if sight.page == RANKS:
        return [*rank_page(scene, width, height, is_ascii=sight.is_ascii)]
    if sight.page == SYSTEM:
        return [*system_page(report, width)]
    if sight.page == LAYERS:
        return [*layer_rows(report, width)]
    has_output = "output" in sight.has and sight.output is not None and not sight.output.is_empty
    why_not = sight.output.trouble if sight.output is not None else ""
    above: list[AnyRow] = [
        *figures(scene, width, height, has_output=has_output, output_note=why_not, is_ascii=sight.is_ascii),
    ]
    return [*above, *_output(sight, width, height - len(above))] if has_output else above


def _output(sight: Sight, width: int, height: int) -> list[AnyRow]:
    """A rule that says whose lines these are, and the lines."""
    output = sight.output
    if output is None or height < FEWEST_LINES:
        return []
    if output.trouble:
        return [*head.labelled("output", output.trouble, width, 2)]
    lines = output.lines(height - 1, back=sight.back)
    whose = f" of rank {output.rank}" if sight.scene.report and sight.scene.report.run.world_size > 1 else ""
    count = units.count(output.num_lines)
    behind = f"{units.count(sight.back)} lines further down" if sight.back else ""
    title = f"output{whose} · {count} line{'' if output.num_lines == 1 else 's'}"
    return [rule(title, width, behind=behind), *lines, *[[]] * (height - 1 - len(lines))]


def _full(body: list[AnyRow], width: int, height: int) -> list[AnyRow]:
    kept: list[AnyRow] = [rows.cut(row, width) if isinstance(row, list) else row for row in body[:height]]
    return [*kept, *[[]] * (height - len(kept))]


def _to_ascii(row: AnyRow, width: int) -> AnyRow:
    """The row for an encoding that carries nothing else; no wider than before, but where a letter needs two."""
    if isinstance(row, list):
        return rows.cut([(to_ascii(text.translate(_NEAREST)), style) for text, style in row], width)
    return tuple((to_ascii(text.translate(_NEAREST)), look) for text, look in row)
