"""Draws the full screen's curves: step time, input and memory, with their typical and their highest values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator, NamedTuple, Optional

from traceml.schema import phases, units
from traceml.views.terminal import spark
from traceml.views.terminal.palette import CURVE, DIM, PLAIN, Style, sign_of
from traceml.views.terminal.scene import PERIOD

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.views.terminal.rows import Row
    from traceml.views.terminal.scene import Points, Scene

_LABEL: Final = 11
_NUMBERS: Final = 6  # columns of one number
_UNIT: Final = 5
_LEAST: Final = 12  # cells of a curve worth drawing


class Graph(NamedTuple):
    """A curve and the numbers beside it, all in one unit."""

    label: str
    points: Points
    style: Style
    numbers: tuple[str, ...]
    unit: str


def graphs_of(scene: Scene) -> list[Graph]:
    """Those that were measured; a metric that was not has no empty box."""
    report = scene.report
    return list(_graphs(scene, report)) if report is not None and report.run.steps else []


def graph_rows(graphs: list[Graph], width: int, height: int, *, steps: str, is_ascii: bool = False) -> list[Row]:
    """A heading, then `height` rows a curve: blocks on one row, braille on more."""
    behind = 3 * _NUMBERS + _UNIT
    cells = width - _LABEL - behind - 1
    if not graphs or cells < _LEAST:
        return []
    heading = "".join(f"{word:>{_NUMBERS}}" for word in ("p50", "p95", "max"))
    first = min(graph.points[0].first_step for graph in graphs)
    last = max(graph.points[-1].last_step for graph in graphs)
    drawn: list[Row] = [[(f"{'':{_LABEL}}{steps[:cells]:<{cells}}{heading}", DIM)]]
    for graph in graphs:
        drawn += _rows(graph, cells, height, steps=(first, last), is_ascii=is_ascii)
    return drawn


def _rows(graph: Graph, cells: int, height: int, *, steps: tuple[int, int], is_ascii: bool) -> Iterator[Row]:
    num_values = cells if height == 1 else 2 * cells
    values = spread(graph.points, first=steps[0], last=steps[1], num_values=num_values)
    label = f"  {graph.label:<{_LABEL - 2}}"
    numbers = "".join(f"{number:>{_NUMBERS}}" for number in graph.numbers) + f" {graph.unit}"
    if height == 1:
        curves = [spark.spark(values, cells, is_ascii=is_ascii)]
    else:
        curves = spark.curve(values, cells, height, is_ascii=is_ascii)
    for at, curve in enumerate(curves):
        is_last = at == len(curves) - 1  # the label stands at the base, beside the curve's body
        beside = (f"{curve:<{cells}}", graph.style)
        yield [(label, PLAIN), beside, (numbers, PLAIN)] if is_last else [(" " * _LABEL, PLAIN), beside]


def spread(points: Points, *, first: int, last: int, num_values: int) -> list[Optional[float]]:
    """The points' maxima over equal shares of the steps; what is seldom measured stands until the next time.

    At most as many values as there are steps: each step of a short run is then one cell.
    """
    num_values = min(num_values, last - first + 1)
    found: list[Optional[float]] = [None] * num_values
    for point in points:
        start = (point.first_step - first) * num_values // (last - first + 1)
        end = (point.last_step - first) * num_values // (last - first + 1)
        for at in range(max(0, start), min(num_values, end + 1)):
            before = found[at]
            found[at] = point.maximum if before is None else max(before, point.maximum)
    for at in range(1, num_values):
        if found[at] is None:
            found[at] = found[at - 1]
    return found


def _graphs(scene: Scene, report: Report) -> Iterator[Graph]:
    period, steps = report.step_time.period_ms, scene.curves.get(PERIOD)
    if steps:
        yield _of_ms("step", steps, (period.p50, period.p95, period.max), CURVE)
    info, fetched = report.step_time.phases.get(phases.INPUT), scene.curves.get(phases.INPUT)
    if fetched and info is not None:
        yield _of_ms("input", fetched, (info.p50_ms, info.p95_ms, info.max_ms), Style(sign_of(phases.INPUT).ink))
    held = scene.curves.get(scene.memory_metric)
    if held:
        yield _of_bytes(held)


def _of_ms(label: str, points: Points, values: tuple[float | None, ...], style: Style) -> Graph:
    longest = max((value for value in values if value is not None), default=0.0)
    unit, size = ("s", 1000.0) if longest >= 10_000 else ("ms", 1.0)  # noqa: PLR2004  # as units.duration
    numbers = tuple("" if value is None else units.significant(value / size) for value in values)
    return Graph(label, points, style, numbers, unit)


def _of_bytes(points: Points) -> Graph:
    """Of what the curve shows: half of it and 95 % lie below."""
    held = sorted(point.maximum for point in points)
    size, unit = 1.0, "B"
    for larger in ("KiB", "MiB", "GiB"):
        if held[-1] / size >= 1024:  # noqa: PLR2004  # binary units
            size, unit = size * 1024, larger
    values = (held[len(held) // 2], held[min(len(held) - 1, int(0.95 * len(held)))], held[-1])
    return Graph("memory", points, CURVE, tuple(units.significant(value / size) for value in values), unit)
