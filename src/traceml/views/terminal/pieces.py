"""Draws what stands below the rule, a piece a function: verdict, price, next step, bar, curves, and what is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from traceml.report.contract import PeriodInfo
from traceml.schema import phases, units
from traceml.views.terminal import bar, cells, rows, state
from traceml.views.terminal.palette import ALARM, AWAITED, BOLD, CURVE, DIM, PLAIN, Style, badge_of, sign_of
from traceml.views.terminal.spark import over_steps, spark, top_of
from traceml.views.text import columns
from traceml.views.text.happened import event_in_words, of_any_rank
from traceml.views.text.price import price, short_price
from traceml.views.text.words import millis

if TYPE_CHECKING:
    from traceml.report.contract import PhaseInfo, Report
    from traceml.report.series import Point, Series
    from traceml.views.terminal.rows import Row

LABEL: Final = 10  # cells, behind three blanks
_INDENT: Final = 3
_LEFT: Final = _INDENT + LABEL
_DOT: Final = " · "
_MS_UNTIL: Final = 10_000
_PERIOD: Final = "period"
_MEMORY: Final = "allocated"
_MIN_CURVE: Final = 8
_INLINE_COLUMNS: Final = 99  # from here on the price stands behind the sentence
_HEADROOM: Final = 3  # blanks between sentence and price
_WIDE: Final = 140


class Canvas(NamedTuple):
    """The room a piece has, and whether only ASCII can be drawn."""

    columns: int
    is_ascii: bool = False


# -- the sentence, its price, the next step ---------------------------------------------------------------------------


def verdict(report: Report, canvas: Canvas, *, most_rows: int) -> list[Row]:
    """Badge and sentence, letter for letter the Report's, on as many rows as it needs; the last one cut if it must."""
    awaited = state.awaited_in_words(report)
    sentence = cells.clean(report.verdict.summary)
    if awaited or not state.is_judged(report):
        return _wrapped([], awaited or sentence, AWAITED, canvas, most_rows=most_rows)
    return _wrapped(_badge(report), sentence, PLAIN, canvas, most_rows=most_rows)


def with_price(report: Report, canvas: Canvas) -> Optional[Row]:
    """Badge, sentence and price on one row, where that has the room; None else."""
    told = short_price(report)
    if not told or not state.is_judged(report) or canvas.columns < _INLINE_COLUMNS:
        return None
    row: Row = [*_badge(report), (cells.clean(report.verdict.summary), PLAIN), (" " * _HEADROOM, PLAIN), (told, BOLD)]
    return row if rows.width(row) <= canvas.columns else None


def priced(report: Report, canvas: Canvas) -> list[Row]:
    """The price on a row of its own, with this run's part of it where there is room."""
    whole, short = price(report), short_price(report)
    if not short or not state.is_judged(report):
        return []
    room = canvas.columns - _LEFT
    without_range = whole.partition(" [")[0]
    told = next((text for text in (whole, without_range, short) if cells.width_of(text) <= room), short)
    return [labelled("price", [(cells.shorten(told, room), BOLD)])]


def next_step(report: Report, canvas: Canvas, *, most_rows: int = 1) -> list[Row]:
    """The next step, or before a verdict why there is none."""
    if not state.is_judged(report):
        text, label = ("", "") if not report.run.steps else (cells.clean(report.verdict.why), "steps")
    else:
        text, label = cells.clean(report.verdict.next), "next"
    lines = list(columns.wrap(text, max(1, canvas.columns - _LEFT))) if text else []
    if len(lines) > most_rows:
        lines = [*lines[: most_rows - 1], cells.shorten(" ".join(lines[most_rows - 1 :]), canvas.columns - _LEFT)]
    return [labelled(label if at == 0 else "", [(line, PLAIN)]) for at, line in enumerate(lines)]


def price_and_next(report: Report, canvas: Canvas) -> list[Row]:
    """Both on one row without labels, for the smallest panel; the next step goes where it has no room."""
    told = short_price(report) if state.is_judged(report) else ""
    steps = cells.clean(report.verdict.next) if state.is_judged(report) else ""
    row: Row = [(" " + cells.shorten(told, canvas.columns - 1), BOLD)] if told else []
    arrow = " → " if told else " next: "
    free = canvas.columns - rows.width(row) - cells.width_of(arrow)
    if steps and free >= min(cells.width_of(steps), canvas.columns // 3):
        row += [(arrow, DIM), (cells.shorten(steps, free), PLAIN)]
    return [row] if row else []


def trouble(report: Report, canvas: Canvas, *, most_rows: int = 1) -> list[Row]:
    """What is wrong now, in words."""
    told = cells.clean(state.trouble_in_words(report))
    if not told:
        return []
    mark = "!" if canvas.is_ascii else "▲"
    style = ALARM if state.is_alarm(report) else BOLD
    room = canvas.columns - 3
    lines = (cells.shorten(told, room), "") if most_rows < 2 else cells.two_lines(told, room, room)  # noqa: PLR2004
    return [[(f" {mark} " if at == 0 else "   ", style), (line, style)] for at, line in enumerate(filter(None, lines))]


def _badge(report: Report) -> Row:
    name, severity = cells.clean(report.verdict.diagnosis).replace("_", " "), report.verdict.severity
    badge: Row = [(f" {name} ", badge_of(severity))]
    if severity != "info":
        return [*badge, (f" {cells.clean(severity)} ", Style(badge_of(severity).ink, is_bold=True)), (" ", PLAIN)]
    return [*badge, ("  ", PLAIN)]


def _wrapped(badge: Row, sentence: str, style: Style, canvas: Canvas, *, most_rows: int) -> list[Row]:
    first = badge or [(" ", PLAIN)]
    if rows.width(first) + cells.width_of(sentence) <= canvas.columns:
        return [[*first, (sentence, style)]]
    first = _without_severity(badge) or first
    room = canvas.columns - rows.width(first)
    if most_rows < 2:  # noqa: PLR2004
        return [[*first, (cells.shorten(sentence, room), style)]]
    upper, lower = cells.two_lines(sentence, room, canvas.columns - 1)
    return [[*first, (upper, style)], *([[(" " + lower, style)]] if lower else [])]


def _without_severity(badge: Row) -> Row:
    """The badge alone: where the sentence has to be cut, the word beside the colour gives it its room."""
    return [badge[0], (" ", PLAIN)] if badge else []


# -- the period -------------------------------------------------------------------------------------------------------


def period(report: Report, canvas: Canvas) -> list[Row]:
    """Two rows: the mean period as a bar, and its legend."""
    parts, room = bar.parts_of(report.step_time, named=bar.blamed(report)), canvas.columns - _LEFT
    if bar.folded(parts, room) != parts:  # the legend's row may begin further left
        room = canvas.columns - _INDENT
        parts = bar.folded(parts, room, kept=bar.blamed(report))
    drawn = bar.bar(parts, canvas.columns - _LEFT, is_ascii=canvas.is_ascii)
    if not drawn:
        return []
    legend = bar.legend(parts, room, is_ascii=canvas.is_ascii, kept=bar.blamed(report))
    has_room = rows.width(legend) <= canvas.columns - _LEFT
    return [labelled(_mean(report), drawn), labelled("", legend) if has_room else [(" " * _INDENT, PLAIN), *legend]]


def period_in_one(report: Report, canvas: Canvas) -> list[Row]:
    """One row: the bar, and behind it as much of the legend as leaves it half of the room."""
    parts = bar.parts_of(report.step_time, named=bar.blamed(report))
    room = canvas.columns // 2
    kept = bar.blamed(report) if report.run.world_size < 2 else ()  # noqa: PLR2004  # another rank's is none of the bar
    legend = bar.legend(bar.shortened(parts, room), room, is_ascii=canvas.is_ascii, kept=kept)
    used = rows.width(legend) + 2 if legend else 0
    drawn = bar.bar(parts, canvas.columns - used - 1, is_ascii=canvas.is_ascii)
    return [[(" ", PLAIN), *drawn, *([("  ", PLAIN), *legend] if legend else [])]] if drawn else []


def _mean(report: Report) -> str:
    mean = state.finite(report.step_time.period_ms.mean)
    return "step" if mean is None else millis(mean)


# -- curves -----------------------------------------------------------------------------------------------------------


def metrics_of(report: Report) -> tuple[str, ...]:
    """The series whose curves a report's panel shows: the period, a phase, memory."""
    clock = "device:" if report.step_time.clock == "device" else ""
    phase = curved_phase(report)
    return (f"{clock}{_PERIOD}", *((f"{clock}{phase}",) if phase else ()), _MEMORY)


def curved_phase(report: Report) -> Optional[str]:
    """Whose curve stands below that of the step: what the verdict blames, else input, else the largest."""
    known = {
        name: info.pct
        for name, info in report.step_time.phases.items()
        if info.pct is not None and info.mean_ms is not None and name in phases.LABELS
    }
    wanted = [name for name in (*bar.blamed(report), phases.INPUT) if known.get(name)]
    return next(iter(wanted), None) or max(known, key=lambda name: known[name], default=None)


def curves(report: Report, series: Mapping[str, Series], canvas: Canvas) -> Iterator[tuple[str, Row]]:
    """The curves that can be drawn, each with its name: of the step, of a phase, of memory; the newest at the right."""
    metrics, phase = metrics_of(report), curved_phase(report)
    told = [("step", metrics[0], _spread(report.step_time.period_ms) + _last(report, series, canvas), CURVE)]
    if phase is not None:
        label, info = bar.SHORT.get(phase, bar.label_of(phase)), report.step_time.phases[phase]
        told.append((label, metrics[1], _spread(info), Style(sign_of(phase).ink)))
    points = {metric: _points(report, series.get(metric)) for _, metric, _, _ in told}
    found = [(label, points[metric], text, style) for label, metric, text, style in told if points[metric] and text]
    memory = _points(report, series.get(_MEMORY))
    if memory:
        found.append(("memory", memory, memory_in_words(report, memory[-1].mean), CURVE))
    extent = _extent([row for _, row, _, _ in found])
    width = max((cells.width_of(text) for _, _, text, _ in found), default=0)
    room = canvas.columns - _LEFT - width - 2
    for at, (label, row, text, style) in enumerate(found):
        drawn: Row = []
        if room >= _MIN_CURVE:
            values = over_steps(row, extent, room, is_held=label == "memory")
            top = top_of([point.maximum for point in row])
            line = spark(values, room, top=top, is_ascii=canvas.is_ascii)
            drawn = [(cells.pad(line, room), style), ("  ", PLAIN)]
        name = ("step", "phase", "memory")[2 if label == "memory" else at > 0]
        yield name, labelled(label, [*drawn, (cells.shorten(text, canvas.columns - _LEFT), PLAIN)])


def _extent(curved: Sequence[Sequence[Point]]) -> tuple[int, int]:
    """The first and the last step of all curves: they share their axis."""
    return min((row[0].first_step for row in curved), default=0), max((row[-1].last_step for row in curved), default=0)


def _last(report: Report, series: Mapping[str, Series], canvas: Canvas) -> str:
    """Of which steps the curves are, where those are not all."""
    points = _points(report, series.get(metrics_of(report)[0]))
    if canvas.columns < _WIDE or not points:
        return ""
    num_steps = points[-1].last_step - points[0].first_step + 1
    return f"{_DOT}curve of the last {units.count(num_steps)}" if num_steps < report.run.steps else ""


def _points(report: Report, series: Optional[Series]) -> Sequence[Point]:
    """Of the rank that the figures are of; of another one where that has none."""
    if series is None or not series.points:
        return ()
    ranks = report.step_time.ranks
    found = series.points.get(ranks.median) if ranks.median is not None else None
    return found or series.points[min(series.points)]


def _spread(found: Union[PeriodInfo, PhaseInfo]) -> str:
    """`p50 74.0 · p95 96.0 · max 6,260 ms`."""
    if isinstance(found, PeriodInfo):
        values = (found.p50, found.p95, found.max)
    else:
        values = (found.p50_ms, found.p95_ms, found.max_ms)
    known = [
        (name, value) for name, value in zip(("p50", "p95", "max"), map(state.finite, values)) if value is not None
    ]
    if not known:
        return ""
    is_long = max(value for _, value in known) >= _MS_UNTIL
    say = millis if is_long else units.significant
    return _DOT.join(f"{name} {say(value)}" for name, value in known) + ("" if is_long else " ms")


# -- what is now ------------------------------------------------------------------------------------------------------


def memory_in_words(report: Report, held: Optional[float] = None) -> str:
    """`3.3 of 24 GiB · peak 4.1 GiB`, of the rank that holds most; empty where nobody measures it."""
    memory = report.step_memory
    typical = memory.allocated_bytes.p50 if memory.allocated_bytes else None
    now = state.finite(held) if held is not None else typical
    if now is None:
        return ""
    text = state.size_of(now, memory.capacity_bytes)
    peaks = (memory.peak_bytes, memory.allocated_bytes)
    peak = next((found.max for found in peaks if found is not None and found.max is not None), None)
    return text if peak is None else f"{text}{_DOT}peak {units.size(peak)}"


def ranks_in_words(report: Report, *, is_long: bool) -> str:
    """`4 ranks · most work on rank 3, 61.0 ms · input 61.0 ms there, median 3.10`; empty of a run with one."""
    ranks = report.step_time.ranks
    if report.run.world_size < 2:  # noqa: PLR2004  # several ranks
        return ""
    told = [f"{report.run.world_size} ranks"] if is_long else []
    apart = [
        (found.worst_ms - found.median_ms, name, found)
        for name, found in ranks.phases.items()
        if name != phases.SYNC and found.worst_ms is not None and found.median_ms is not None
    ]
    if apart and ranks.worst is not None:
        _, name, found = max(apart, key=lambda item: item[0])
        assert found.worst_ms is not None
        assert found.median_ms is not None
        phase = f"{bar.label_of(name)} {millis(found.worst_ms)}"
        is_pair = report.run.world_size == 2  # noqa: PLR2004  # neither is the median
        beside = "the other" if is_pair else "median"
        told.append(f"worst rank {found.worst}: {phase} ({beside} {units.significant(found.median_ms)})")
        waits = ranks.phases.get(phases.SYNC)
        waited_ms = waits and (waits.worst_ms if is_pair else waits.median_ms)
        if is_long and waited_ms:
            told.append(f"waiting for ranks {millis(waited_ms)} on the other{'' if is_pair else 's'}")
    return _DOT.join(told)


def now(report: Report, canvas: Canvas) -> list[Row]:
    """One row: what is open, memory, ranks, host."""
    doing = state.doing_in_words(report)
    memory = memory_in_words(report)
    told = [doing] if doing and (not report.run.steps or _is_long(report)) else []
    told += filter(None, [ranks_in_words(report, is_long=False)])
    told += [f"memory {memory}"] if memory else []
    told += state.host_in_words(report, is_long=False)
    return _joined("now", told, canvas)


def doing(report: Report, canvas: Canvas) -> list[Row]:
    """What is open, when that is worth a row: before the first step, and when it has been for a while."""
    told = state.doing_in_words(report)
    return _joined("now", [told], canvas) if told and (not report.run.steps or _is_long(report)) else []


def _is_long(report: Report) -> bool:
    since = state.number((report.run.live or {}).get("since_s"))
    return since is not None and since >= state.quiet_limit_s(report)


def ranks(report: Report, canvas: Canvas) -> list[Row]:
    """How the ranks compare."""
    return _joined("ranks", filter(None, [ranks_in_words(report, is_long=True)]), canvas)


def host(report: Report, canvas: Canvas) -> list[Row]:
    """CPU, RAM, devices."""
    return _joined("host", state.host_in_words(report, is_long=True), canvas)


def memory(report: Report, canvas: Canvas) -> list[Row]:
    """Memory without a curve."""
    return _joined("memory", filter(None, [memory_in_words(report)]), canvas)


def events(report: Report, canvas: Canvas) -> list[Row]:
    """What happened beside the steps, the costliest first."""
    return _joined("events", map(event_in_words, of_any_rank(report.events)), canvas)


def _joined(label: str, told: Iterable[str], canvas: Canvas) -> list[Row]:
    """The parts with dots between them, as many as fit; the first is shortened when it alone does not."""
    room = canvas.columns - _LEFT
    line = ""
    for part in map(cells.clean, told):
        joined = f"{line}{_DOT}{part}" if line else cells.shorten(part, room)
        if cells.width_of(joined) <= room:
            line = joined
    return [labelled(label, [(line, PLAIN)])] if line else []


def labelled(label: str, row: Row) -> Row:
    """A row behind its label."""
    return [("   ", PLAIN), (cells.pad(cells.fit(label, LABEL - 1), LABEL), DIM), *row]
