"""Draws the panel's first row: a rule with name, step, pace, time left, and how to see more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator, Optional

from traceml.schema import units
from traceml.views.terminal import cells, state
from traceml.views.terminal.palette import ALARM, BOLD, DIM, PLAIN
from traceml.views.text.paces import groups_of, pace_in_words
from traceml.views.text.words import seconds

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.views.terminal.pace import Moment
    from traceml.views.terminal.palette import Style
    from traceml.views.terminal.rows import Row

HINTS: Final = ("traceml attach: full view", "traceml attach")
_LINE: Final = "─"
_LEFT: Final = 3  # "── "
_DOT: Final = " · "
_LEAST_NAME: Final = 12
_LAST: Final = 0  # goes at last; a run's end in a word before it
_LEAST_LINE: Final = 2  # between what is said left and right


def rule(report: Report, moment: Moment, columns: int) -> Row:
    """The rule on exactly `columns` cells; what has no room falls away whole, the least needed first."""
    told = list(_told(report, moment))
    ends: tuple[str, ...] = (*HINTS, "") if state.is_running(report) else ("",)
    name = cells.clean(report.run.name) or "run"
    while True:
        for end in ends:
            tail = f" {end} {_LINE * 2}" if end else ""
            free = columns - _LEFT - 1 - _LEAST_LINE * bool(tail) - cells.width_of(tail)
            free -= sum(cells.width_of(_DOT + text) for text, _, _ in told)
            if free >= min(cells.width_of(name), columns // 2 if end else _LEAST_NAME):
                return _drawn(cells.fit(name, free), [(text, style) for text, style, _ in told], tail, columns)
        if not told:
            return [(cells.head(_LINE * columns, columns), DIM)]
        least = max(told, key=lambda part: part[2])
        told.remove(least)
        if least[2] == _LAST and not state.is_running(report):
            told.append((cells.clean(report.run.status), least[1], _LAST - 1))


def _told(report: Report, moment: Moment) -> Iterator[tuple[str, Style, int]]:
    """What is said behind the name, its style, and how early it goes."""
    run = report.run
    is_over = not state.is_running(report)
    at = run.last_step if run.last_step is not None else run.steps
    if run.steps:
        of = f" of {units.count(run.total_steps)}" if run.total_steps and not is_over else ""
        yield f"step {units.count(at)}{of}", PLAIN, 1
    if run.steps and run.user_step is not None and run.user_step != at:
        yield f"yours {units.count(run.user_step)}", DIM, 5
    if is_over:
        style = ALARM if run.status in ("failed", "killed") else BOLD
        yield state.end_in_words(report), style, _LAST
        return
    age = state.age_in_words(report, moment)
    if age:
        yield age, BOLD, _LAST
        return
    pace = _pace(report, moment)
    if pace is not None and run.steps:
        told = pace_in_words(report, is_short=True) if groups_of(report) else ""
        yield told or f"{units.significant(pace)} steps/s", PLAIN, 3
    left_s = seconds_left(report, at)
    if left_s is not None:
        yield f"{rounded_left(left_s)} left", PLAIN, 2
    if run.restarts:
        yield f"{run.restarts} restart{'s' if run.restarts > 1 else ''}", PLAIN, 4


def _pace(report: Report, moment: Moment) -> Optional[float]:
    found = state.finite(moment.steps_per_s) or state.finite(report.throughput.steps_per_s)
    return found if found and found > 0 else None


def seconds_left(report: Report, at: int) -> Optional[float]:
    """What the steps still to come will take: the mean of the steady ones, evaluations and checkpoints in it."""
    wall = report.step_time.wall_period_ms or report.step_time.period_ms
    mean_ms, total = state.finite(wall.mean), report.run.total_steps
    if mean_ms is None or not total or at >= total:
        return None
    return state.finite((total - at) * mean_ms / 1e3)


def rounded_left(left_s: float) -> str:
    """In whole minutes from two on, so that it does not flicker; an hour and a half is `1 h 30 min`."""
    if left_s >= 120:  # noqa: PLR2004
        return seconds(round(left_s / 60) * 60)
    return seconds(max(1, round(left_s)))


def _drawn(name: str, told: list[tuple[str, Style]], tail: str, columns: int) -> Row:
    row: Row = [(_LINE * 2 + " ", DIM), (name, BOLD)]
    for text, style in told:
        row += [(_DOT, DIM), (text, style)]
    used = sum(cells.width_of(text) for text, _ in row) + 1 + cells.width_of(tail)
    return [*row, (" " + _LINE * max(0, columns - used), DIM), (tail, DIM)]
