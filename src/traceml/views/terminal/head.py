"""Says what comes first on the full screen: which run, its verdict, its price, the next step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Iterator, Optional

from traceml.report.contract import STALE_S
from traceml.schema import units
from traceml.views.terminal import cells, rows, state
from traceml.views.terminal.palette import ALARM, AWAITED, BOLD, DIM, PLAIN, WARNING, Style, badge_of
from traceml.views.terminal.rule import rounded_left, seconds_left
from traceml.views.text import columns
from traceml.views.text.paces import pace_in_words
from traceml.views.text.price import price
from traceml.views.text.words import ending, plural, seconds

if TYPE_CHECKING:
    from traceml.report.contract import Report, RunInfo
    from traceml.views.terminal.rows import Piece, Row
    from traceml.views.terminal.scene import Scene

NARROW: Final = 60  # columns; below, the sentence goes before its ornaments
_LABEL: Final = 9  # columns of `price`, `next`, `why`
_SLOW: Final = 3.0  # times the usual gap between two looks: whoever did not come back by then hangs
_WARNED: Final = Style(WARNING, is_bold=True)


@dataclass(frozen=True)
class Moment:
    """What the person who looks has chosen, and how late it is."""

    now_s: float = 0.0  # time.monotonic()
    gap_s: float = 1.0  # usual between two looks
    is_paused: bool = False


def age_s(scene: Scene, moment: Moment) -> Optional[float]:
    """How old the newest data is, once that is worth a word; None while it comes as it should, or is over."""
    if not scene.is_running or scene.window is not None:
        return None
    known = (scene.report.run.data_age_s if scene.report else None) or 0.0
    since = max(0.0, moment.now_s - scene.taken_s)
    is_held = bool(scene.trouble) and scene.report is not None
    if is_held or known > STALE_S or since > max(STALE_S, _SLOW * moment.gap_s):
        return known + since
    return None


def run_line(scene: Scene, name: str, moment: Moment, width: int) -> Row:
    """Name and step left; pace, duration and the time left right, as far as they fit."""
    report = scene.report
    left: Row = [(" ", PLAIN), (cells.fit(cells.clean(name) or "?", max(8, width // 2)), BOLD)]
    if report is not None:
        left.append((f" · {_where(report.run)}", PLAIN))
    state = _state(scene, moment)
    ends = list(_pace(report)) if report is not None else []
    row = rows.cut(left, width)
    if state is not None:
        row = [*rows.cut(left, width - cells.width_of(state[0]) - 4), (" · ", PLAIN), state]
    for number in range(len(ends), 0, -1):
        text = " · ".join(ends[:number])
        room = width - rows.width(row) - cells.width_of(text) - 1
        if room >= 2:  # noqa: PLR2004  # apart from what is left of it
            return [*row, (" " * room + text, PLAIN)]
    return row


def _where(run: RunInfo) -> str:
    noun = "inferred step" if run.inferred else "step"
    if run.status != "running":
        return f"{ending(run) or cells.clean(run.status)} · {plural(run.steps, noun)}"
    if not run.steps:
        return "no step yet"
    of = f" of {units.count(run.total_steps)}" if run.total_steps else ""
    return f"{noun} {units.count(run.last_step or run.steps)}{of}"


def _state(scene: Scene, moment: Moment) -> Optional[Piece]:
    """What makes this another sight than the live one; one of them, in the order of their weight."""
    if moment.is_paused:
        return ("paused", _WARNED)
    window = scene.window
    if window is not None:
        return (f"only steps {units.count(window[0])} to {units.count(window[1])}", _WARNED)
    age = age_s(scene, moment)
    return None if age is None else (f"{state.whole_seconds(age)} ago", _WARNED)


def _pace(report: Report) -> Iterator[str]:
    run = report.run
    if report.throughput.steps_per_s is not None:
        yield pace_in_words(report, is_short=True)
    yield seconds(run.duration_s)
    left_s = seconds_left(report, run.last_step or run.steps) if state.is_running(report) and run.steps else None
    if left_s is not None:
        yield f"{rounded_left(left_s)} left"


def verdict_rows(report: Report, width: int, most: int) -> list[Row]:
    """The badge, and the Report's sentence letter for letter, on at most `most` rows; before it, what is awaited."""
    verdict = report.verdict
    sentence = cells.clean(verdict.summary)
    if not state.is_judged(report) and state.is_running(report):
        awaited = state.awaited_in_words(report) or sentence
        return [[(" ", PLAIN), (line, AWAITED)] for line in wrapped(awaited, width - 2, most)]
    name = cells.clean(verdict.diagnosis).replace("_", " ")
    severity = "" if verdict.severity == "info" else f" {cells.clean(verdict.severity)}"
    shown = f" {cells.fit(name, max(4, width - 16))} "
    badge: Row = [(" ", PLAIN), (shown, badge_of(verdict.severity)), (severity, PLAIN)]
    if cells.width_of(sentence) <= width - rows.width(badge) - 3:
        return [[*badge, ("  ", PLAIN), (sentence, BOLD)]]
    return [badge, *([(" ", PLAIN), (line, BOLD)] for line in wrapped(sentence, width - 2, most - 1))]


def advice_rows(report: Report, width: int, most: int) -> list[tuple[str, list[Row]]]:
    """`price`, `next` and `why` with their rows, at most `most` each; trouble comes first."""
    found: list[tuple[str, list[Row]]] = []
    trouble = cells.clean(state.trouble_in_words(report))
    if trouble:
        style = ALARM if state.is_alarm(report) else BOLD
        found.append(
            ("trouble", labelled("now" if state.is_running(report) else "died", trouble, width, most + 1, style=style))
        )
    verdict = report.verdict
    told = price(report)
    told = told if width >= NARROW else told.partition(" [")[0]
    for label, text in (("price", told), ("next", verdict.next), ("why", verdict.why)):
        if text:
            found.append((label, labelled(label, cells.clean(text), width, most)))
    return found


def labelled(label: str, text: str, width: int, most: int, *, style: Style = PLAIN) -> list[Row]:
    """A label and its text behind it, wrapped under itself; without blanks to spare where there are none."""
    before, size = ("  ", _LABEL) if width >= NARROW else (" ", max(6, len(label) + 1))
    lines = wrapped(text, width - len(before) - size - 1, most)
    heads = [before + f"{label:<{size}}", *[" " * (len(before) + size)] * len(lines)]
    return [[(head, DIM), (line, style)] for head, line in zip(heads, lines)]


def wrapped(text: str, width: int, most: int) -> list[str]:
    """The text on at most `most` lines; what does not fit ends in an ellipsis behind a whole word."""
    lines = list(columns.wrap(text, max(1, width)))
    if len(lines) <= most:
        return lines
    if most < 1:
        return []
    return [*lines[: most - 1], cells.shorten(" ".join(lines[most - 1 :]), width)]
