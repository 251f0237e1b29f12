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
_NUMS_EVENTS: Final = (6, 4, 2)  # beside the curves, as far as there is room
_ESSENTIAL: Final = 1  # price and bar at 40 columns, beside a verdict that stays
_TROUBLE: Final = 2  # stands there before any output, too
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
    above = _narrow(page, height) if is_narrow else _above(report, width, is_ascii=is_ascii)
    if scene.trouble:
        above.append(Block(head.labelled("held", cells.clean(scene.trouble), width, 2), _TROUBLE))
    below = [Block(head.labelled("output", output_note, width, 1), 8)] if output_note else []
    middle = [] if is_narrow else _middle(page, height - num_lines - _size([*above, *below]), spare=num_lines)
    room = height - (FEWEST_LINES if has_output else 0)
    if is_narrow:  # verdict, price, bar and trouble come before the output
        least = _size([block for block in above if block.goes <= _TROUBLE])
        room = max(room, least) if height - least >= FEWEST_LINES else height
    return _fitted([*above, *middle, *below], room)


def _fitted(blocks: list[Block], height: int) -> list[Row]:
    kept = list(blocks)
    while kept and _size(kept) > height:
        kept.remove(max(reversed(kept), key=lambda block: block.goes))
    return [row for block in kept for row in block.rows]


def _size(blocks: Sequence[Block]) -> int:
    return sum(len(block.rows) for block in blocks)


def _above(report: Report, width: int, *, is_ascii: bool) -> list[Block]:
    """Verdict, trouble, price, next step, and the period."""
    blocks = [Block(head.verdict_rows(report, width, 3), 0)]
    goes = {"trouble": 0, "price": 2, "next": 1, "why": 7}
    blocks += [Block(drawn, goes[label]) for label, drawn in head.advice_rows(report, width, 2)]
    return blocks + _period(report, width, is_narrow=False, is_ascii=is_ascii)


def _narrow(page: _Page, height: int) -> list[Block]:
    """Verdict, price and bar before anything else, then trouble, the next step, and the largest phases."""
    report, width = page.report, page.width
    bar_block, *listed = _period(report, width, is_narrow=True, is_ascii=page.is_ascii) or [Block([], _ESSENTIAL)]
    found = dict(head.advice_rows(report, width, 2))
    price = Block(found.get("price", []), _ESSENTIAL)
    least = len(price.rows) + len(bar_block.rows)
    verdict = Block(head.verdict_rows(report, width, max(2, min(5, height - least))), 0)
    goes = {"trouble": _TROUBLE, "next": 3, "why": 7}
    others = [Block(found[label], goes[label]) for label in goes if label in found]
    return [verdict, price, bar_block, *others, *listed]


class _Page(NamedTuple):
    scene: Scene
    report: Report
    width: int
    is_ascii: bool = False


def _middle(page: _Page, height: int, *, spare: int) -> list[Block]:
    """Curves, as high as there is room for, and facts: beside one another where there are 100 columns, else below."""
    if page.width >= WIDE:
        return [Block([[]], 9), Block(_in_two(page, height - 1, spare=spare), 3)]
    found = graphs.graphs_of(page.scene)
    others = _facts(page)
    room = height - 1 - _size(others) - min(3, 1 + len(tables.event_lines(page.report)))
    curve_height = next((high for high in _HEIGHTS if 1 + len(found) * high <= room), 1)
    drawn = graphs.graph_rows(found, page.width, curve_height, steps=_steps(page.scene), is_ascii=page.is_ascii)
    return [Block([[]], 9), Block(drawn, 4), *others, *_events(page.report, page.width, 2)]


class _Way(NamedTuple):
    """A way to stand in two columns."""

    curve_height: int
    num_events: int
    moved: int  # a bit a section: whether it stands below the curves, not beside them
    num_rows: int


def _in_two(page: _Page, room: int, *, spare: int) -> list[Row]:
    """Curves left; what is beside them goes on below them where that leaves rows to the output."""
    found = graphs.graphs_of(page.scene)
    width = int(page.width * _LEFT_SHARE)
    beside = page.width - width - 3
    has_curves = bool(graphs.graph_rows(found, width, 1, steps=""))
    lefts, rights = _sections(page, width), _sections(page, beside)
    most = len(tables.event_lines(page.report))
    events = {
        number: (_events(page.report, width, number, most_rows=2), _events(page.report, beside, number, most_rows=2))
        for number in sorted({min(most, number) for number in _NUMS_EVENTS if most})
    } or {0: ([], [])}
    ways = []
    for number, (left, right) in events.items():
        sizes = [(len(one.rows), len(other.rows)) for one, other in zip([*lefts, *left], [*rights, *right])]
        for moved in range(0, 1 << len(sizes), 2):  # the first one stays at the right
            below = sum(size for at, (size, _) in enumerate(sizes) if moved >> at & 1)
            aside = sum(size for at, (_, size) in enumerate(sizes) if not moved >> at & 1)
            for high in _HEIGHTS if has_curves else (0,):
                curves = 1 + len(found) * high if has_curves else 0
                ways.append(_Way(high, number, moved, max(curves + below, aside)))

    def cost(way: _Way) -> tuple[int, int, int, int]:
        """Rows that it takes from the output, a curve of one row counted as a few; then what is shown less."""
        taken = max(0, way.num_rows - room) + (spare // 3 if way.curve_height == 1 else 0)
        return taken, -way.curve_height, -way.num_events, way.num_rows

    best = min(ways, key=cost)
    left, right = events[best.num_events]
    drawn = graphs.graph_rows(found, width, best.curve_height, steps=_steps(page.scene), is_ascii=page.is_ascii)
    below_them = [one for at, one in enumerate([*lefts, *left]) if best.moved >> at & 1]
    at_right = [one for at, one in enumerate([*rights, *right]) if not best.moved >> at & 1]
    return tables.beside([*drawn, *_rows(below_them)], _rows(at_right), width=width, gap=3)


def _rows(sections: Sequence[Block]) -> list[Row]:
    return [row for block in sections for row in block.rows]


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


def _sections(page: _Page, width: int) -> list[Block]:
    """A map of the ranks, the phases, host and run; each with its rule."""
    scene, report = page.scene, page.report
    found: list[Block] = []
    for metric in list(scene.heat)[:1]:
        drawn = pages.map_rows(scene, metric, width, _MAX_RANKS, is_ascii=page.is_ascii)
        found += [Block([pages.map_rule(scene, metric, width), *drawn], 3)] if drawn else []
    table = tables.phase_rows(report, width - 2, is_ascii=page.is_ascii)
    title = tables.rule(tables.phase_title(report), width)
    found += [Block([title, *([("  ", PLAIN), *row] for row in table)], 3)] if table else []
    facts = _rows(_facts(page._replace(width=width), most_rows=4))
    return [*found, Block([tables.rule("host and run", width), *facts], 3)] if facts else found
