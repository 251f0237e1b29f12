"""Composes the pages behind keys: ranks, system, layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator

from traceml.schema import phases, units
from traceml.views.terminal import cells, head, tables
from traceml.views.terminal.heat import heat_legend, heat_rows, levels_of
from traceml.views.terminal.palette import BOLD, CURVE, DIM, PLAIN, Style, sign_of
from traceml.views.terminal.scene import OWN
from traceml.views.text.facts import clock_in_words, findings_in_words, memory_in_words, notes_in_words
from traceml.views.text.ranks import deaths_in_words, ranks_in_words, restarts_in_words
from traceml.views.text.words import plural, seconds

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.views.terminal.rows import Row
    from traceml.views.terminal.scene import Scene

_FEWEST: Final = 2  # ranks in a map
_FRAME: Final = 10  # of a rule, around its title
_SHORT_TITLES: Final = {OWN: "own work, ms", phases.INPUT: "input, ms"}
_TITLES: Final = {OWN: "own work between two synchronisations", phases.INPUT: "waiting for data"}


def hot_of(metric: str) -> Style:
    """The colour of a map's high cells."""
    return Style(sign_of(metric).ink) if metric in phases.PHASE_INDEX else CURVE


def rank_page(scene: Scene, width: int, height: int, *, is_ascii: bool = False) -> list[Row]:
    """Ranks by phases, then a heat map of own work and one of input by steps, as far as there is room."""
    report = scene.report
    assert report is not None
    drawn: list[Row] = [[], *head.verdict_rows(report, width, 3), []]
    drawn += [tables.rule("ranks: mean ms a step", width), *tables.rank_rows(report, width)]
    for text in ranks_in_words(report):
        drawn += [[("  ", PLAIN), (line, PLAIN)] for line in head.wrapped(cells.clean(text), width - 3, 2)]
    for at, metric in enumerate(scene.heat):
        left = len(scene.heat) - at
        most = (height - len(drawn)) // left - 3
        ranks = tables.heat_of(scene, metric, most)
        if len(ranks) < _FEWEST:
            continue
        drawn += [[], map_rule(scene, metric, width), *map_rows(scene, metric, width - 2, most, is_ascii=is_ascii)]
    return drawn


def map_rule(scene: Scene, metric: str, width: int) -> Row:
    """What the map shows, and of which steps."""
    points = [row for row in scene.heat[metric].values() if row]
    first, last = min(row[0].first_step for row in points), max(row[-1].last_step for row in points)
    behind = f": ranks × steps {units.count(first)} to {units.count(last)}"
    title = _TITLES[metric] if cells.width_of(_TITLES[metric] + behind) < width - _FRAME else _SHORT_TITLES[metric]
    return tables.rule(title + behind, width)


def map_rows(scene: Scene, metric: str, width: int, most: int, *, is_ascii: bool = False) -> list[Row]:
    """A map and its legend."""
    levels, hot = levels_of(scene.heat[metric]), hot_of(metric)
    drawn = heat_rows(tables.heat_of(scene, metric, most), levels, width - 2, hot=hot, is_ascii=is_ascii)
    legend = heat_legend(levels, width - 4, hot=hot, is_ascii=is_ascii)
    return [*([(" ", PLAIN), *row] for row in drawn), [("   ", PLAIN), *legend]] if drawn else []


def system_page(report: Report, width: int) -> list[Row]:
    """Host, devices, process, versions, and what the report rests on."""
    drawn: list[Row] = [[], tables.rule("system", width)]
    for label, text in _system(report):
        drawn += head.labelled(label, cells.clean(text), width, 3)
    drawn += [[], tables.rule("this report", width)]
    for label, text in _about(report):
        drawn += head.labelled(label, cells.clean(text), width, 3)
    return drawn


def _system(report: Report) -> Iterator[tuple[str, str]]:
    run, system, process = report.run, report.system, report.process
    yield "host", " · ".join(filter(None, (run.hostname, tables.host_in_words(report))))
    if system.devices:
        yield "devices", " · ".join(system.devices)
    used = []
    if process.cpu_percent_mean is not None:
        used.append(f"CPU {process.cpu_percent_mean:.0f} % of a core")
    if process.rss_bytes_max is not None:
        used.append(f"{units.size(process.rss_bytes_max)} at most")
    if process.num_threads_max is not None:
        used.append(plural(process.num_threads_max, "thread"))
    if process.read_bytes is not None and process.write_bytes is not None:
        used.append(f"read {units.size(process.read_bytes)}, wrote {units.size(process.write_bytes)}")
    if used:
        yield "process", " · ".join(used)
    memory = memory_in_words(report.step_memory)
    if memory:
        yield "memory", memory
    loader = [f"{name}={value}" for name, value in report.loader.items() if name in _LOADER and value is not None]
    if loader:
        yield "loader", ", ".join(loader)
    for text in findings_in_words(report):
        yield "besides", text


_LOADER: Final = ("dataset", "num_workers", "batch_size", "pin_memory", "prefetch_factor", "persistent_workers")


def _about(report: Report) -> Iterator[tuple[str, str]]:
    run, cover = report.run, report.coverage
    versions = (("TraceML", run.traceml_version), ("Python", run.python_version), ("torch", run.torch_version))
    yield "script", run.script
    yield "folder", run.folder
    yield "versions", " · ".join(f"{name} {version}" for name, version in versions if version)
    yield "clock", clock_in_words(report) or "the host's"
    if cover.unseen:
        yield "unseen", ", ".join(phases.LABELS.get(name, name) for name in cover.unseen)
    for label, text in (("restarts", restarts_in_words(report)), ("died", deaths_in_words(report))):
        if text:
            yield label, text
    if run.startup_s is not None:
        yield "started", f"in {seconds(run.startup_s)}"
    if report.overhead is not None:
        cost = report.overhead
        yield (
            "tracing",
            f"{units.significant(cost.us_per_step)} us a step, {units.percent(cost.pct / 100)} of it",
        )
    for note in notes_in_words(report):
        yield "note", note


def layer_rows(report: Report, width: int) -> list[Row]:
    """The layers as they stand in the report."""
    drawn: list[Row] = [[], tables.rule("layers", width)]
    for name, value in (report.layers or {}).items():
        drawn.append([(f"  {cells.fit(cells.clean(name), width // 2)}  ", BOLD), (cells.clean(str(value)), DIM)])
    return drawn
