"""Composes the first page's figures: what fits stays in order, what matters least goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Sequence

from traceml.schema import units
from traceml.views.terminal import bar, cells, graphs, head, pages, tables
from traceml.views.terminal.palette import PLAIN, Style, sign_of
from traceml.views.terminal.scene import PERIOD
from traceml.views.text.words import millis

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.views.terminal.rows import Row
    from traceml.views.terminal.scene import Scene

FEWEST_LINES: Final = 5  # of output with its rule; with less it is left out
WIDE: Final = 100  # columns from which on there are two columns of figures
_LEFT_SHARE: Final = 0.52
_OUTPUT_SHARE: Final = 3  # of the rows the output gets a third
_BAR_LABEL: Final = 11
_HEIGHTS: Final = (6, 5, 4, 3, 1)  # of a curve; two rows of braille say less than one of blocks
_MAX_EVENTS: Final = 6
_MAX_LISTED: Final = 5  # phases below one another
_PART_LABEL: Final = 14
_MAX_RANKS: Final = 8  # of the heat map beside the curves


class Block(NamedTuple):
    """Rows that stay or go together; the larger `goes`, the sooner."""

    rows: Sequence[Row]
    goes: int


def figures(
    scene: Scene, width: int, height: int, *, has_output: bool, output_note: str = "", is_ascii: bool = False
) -> list[Row]:
    """At most as many rows as the output leaves; curves as high as there is room for."""
    report = scene.report
    assert report is not None
    num_lines = max(FEWEST_LINES, height // _OUTPUT_SHARE) if has_output else 0
    page = _Page(scene, report, width, is_ascii=is_ascii)
    is_narrow = width < head.NARROW
    above = _above(report, width, is_narrow=is_narrow, is_ascii=is_ascii)
    if scene.trouble:
        above.append(Block(head.labelled("held", cells.clean(scene.trouble), width, 2), 2))
    below = [Block(head.labelled("output", output_note, width, 1), 8)] if output_note else []
    middle = [] if is_narrow else _middle(page, height - num_lines - _size([*above, *below]))
    return _fitted([*above, *middle, *below], height - (FEWEST_LINES if has_output else 0))


def _fitted(blocks: list[Block], height: int) -> list[Row]:
    kept = list(blocks)
    while kept and _size(kept) > height:
        kept.remove(max(reversed(kept), key=lambda block: block.goes))
    return [row for block in kept for row in block.rows]


def _size(blocks: Sequence[Block]) -> int:
    return sum(len(block.rows) for block in blocks)


def _above(report: Report, width: int, *, is_narrow: bool, is_ascii: bool) -> list[Block]:
    """Verdict, trouble, price, next step, and the period."""
    blocks = [Block(head.verdict_rows(report, width, 5 if is_narrow else 3), 0)]
    goes = {"trouble": 0, "price": 2, "next": 1, "why": 7}
    blocks += [Block(drawn, goes[label]) for label, drawn in head.advice_rows(report, width, 2)]
    return blocks + _period(report, width, is_narrow=is_narrow, is_ascii=is_ascii)


class _Page(NamedTuple):
    scene: Scene
    report: Report
    width: int
    is_ascii: bool = False


def _middle(page: _Page, height: int) -> list[Block]:
    """Curves, as high as there is room for, and facts: beside one another where there are 100 columns, else below."""
    found = graphs.graphs_of(page.scene)
    is_wide = page.width >= WIDE
    width = int(page.width * _LEFT_SHARE) if is_wide else page.width
    others = _right(page, page.width - width - 3) if is_wide else _facts(page)
    taken = 0 if is_wide else _size(others) + min(3, 1 + len(tables.event_lines(page.report)))
    room = height - 1 - taken
    curve_height = next((high for high in _HEIGHTS if 1 + len(found) * high <= room), 1)
    drawn = graphs.graph_rows(found, width, curve_height, steps=_steps(page.scene), is_ascii=page.is_ascii)
    if not is_wide:
        return [Block([[]], 9), Block(drawn, 4), *others, *_events(page.report, page.width, 2)]
    right = [row for block in others for row in block.rows]
    most = max(2, min(_MAX_EVENTS, len(drawn) - len(right) - 1))
    for block in _events(page.report, page.width - width - 3, most, most_rows=2):
        right += block.rows
    return [Block([[]], 9), Block(tables.beside(drawn, right, width=width, gap=3), 3)]


def _period(report: Report, width: int, *, is_narrow: bool, is_ascii: bool) -> list[Block]:
    """The period as a bar with its legend; where that has no room, the largest phases below one another."""
    named = bar.blamed(report)
    parts = bar.parts_of(report.step_time, named=named)
    mean = report.step_time.period_ms.mean
    if not parts or mean is None:
        return []
    if is_narrow:
        drawn = [[(" ", PLAIN), *bar.bar(parts, width - 2, is_ascii=is_ascii)]]
        largest = sorted(parts, key=lambda part: (part.phase not in named, -part.pct))[:_MAX_LISTED]
        listed = [_part(part, report, is_ascii=is_ascii) for part in parts if part in largest]
        return [Block(drawn, 1), *(Block([row], 5) for row in listed)]
    before = f"  {millis(mean):<{_BAR_LABEL - 2}}"
    room = width - len(before) - 1
    parts = bar.folded(parts, room, kept=named)
    drawn = [[(before, PLAIN), *bar.bar(parts, room, is_ascii=is_ascii)]]
    legend: Row = [(" " * len(before), PLAIN), *bar.legend(parts, room, is_ascii=is_ascii, kept=named)]
    return [Block([[]], 8), Block(drawn, 1), Block([legend], 2)]


def _part(part: bar.Part, report: Report, *, is_ascii: bool) -> Row:
    sign = sign_of(part.phase)
    mean = report.step_time.period_ms.mean or 0.0
    share = units.percent(part.ms / mean) if mean else ""
    label = part.label if cells.width_of(part.label) <= _PART_LABEL else bar.SHORT.get(part.phase, part.label)
    name = cells.pad(cells.fit(label, _PART_LABEL), _PART_LABEL)
    glyph = sign.ascii if is_ascii else sign.block
    return [(" ", PLAIN), (glyph, Style(sign.ink)), (f" {name}{millis(part.ms):>10}{share:>8}", PLAIN)]


def _steps(scene: Scene) -> str:
    points = scene.curves.get(PERIOD, ())
    if not points:
        return ""
    which = "whole run, " if scene.asked.is_whole and scene.window is None else ""
    return f"{which}steps {units.count(points[0].first_step)} to {units.count(points[-1].last_step)}"


def _facts(page: _Page, *, most_rows: int = 2) -> list[Block]:
    goes = {"now": 5, "restarts": 3, "ranks": 3, "host": 5, "memory": 7, "speed": 8}
    has_curve = page.scene.memory_metric in page.scene.curves
    return [
        Block(
            head.labelled(label, text, page.width, most_rows + 1 if label == "ranks" else most_rows),
            goes[label],
        )
        for label, text in tables.fact_lines(page.report)
        if label != "memory" or not has_curve or page.report.step_memory.diagnosis
    ]


def _events(report: Report, width: int, most: int, *, most_rows: int = 1) -> list[Block]:
    """At most `most` events, each on at most `most_rows` rows."""
    lines = tables.event_lines(report)
    if not lines:
        return []
    shown = lines[: most - 1] if len(lines) > most else lines
    drawn: list[Row] = [
        [("  " if at == 0 else "    ", PLAIN), (line, style)]
        for text, style in shown
        for at, line in enumerate(head.wrapped(text, width - 5, most_rows))
    ]
    if len(lines) > most:
        drawn.append([("  ", PLAIN), (f"and {units.count(len(lines) - len(shown))} more", PLAIN)])
    return [Block([tables.rule("events", width), *drawn], 6)]


def _right(page: _Page, width: int) -> list[Block]:
    """A map of the ranks, the phases, host and run."""
    scene, report = page.scene, page.report
    blocks: list[Block] = []
    for metric in list(scene.heat)[:1]:
        drawn = pages.map_rows(scene, metric, width, _MAX_RANKS, is_ascii=page.is_ascii)
        blocks += [Block([pages.map_rule(scene, metric, width), *drawn], 3)] if drawn else []
    table = tables.phase_rows(report, width - 2, is_ascii=page.is_ascii)
    blocks += (
        [Block([tables.rule(tables.phase_title(report), width), *([("  ", PLAIN), *row] for row in table)], 3)]
        if table
        else []
    )
    facts = _facts(page._replace(width=width), most_rows=4)
    return [*blocks, Block([tables.rule("host and run", width)], 3), *facts] if facts else blocks
