"""Draws the card: a run on 80 columns of plain text, the sentence first, then price, next step and evidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Iterator, NamedTuple, Sequence

from traceml.report.contract import STALE_S
from traceml.schema import units
from traceml.views.text import columns
from traceml.views.text.columns import clean
from traceml.views.text.facts import (
    also_in_words,
    clock_in_words,
    findings_in_words,
    memory_in_words,
    notes_in_words,
    now_in_words,
    phase_in_words,
    speed_in_words,
)
from traceml.views.text.paces import groups_of
from traceml.views.text.price import price
from traceml.views.text.ranks import deaths_in_words, ranks_in_words, restarts_in_words, stall_in_words
from traceml.views.text.words import ending, headline, millis, plural, seconds

if TYPE_CHECKING:
    from traceml.report.contract import Report, RunInfo

WIDTH: Final = 80
_SHOWN_PCT: Final = 0.5  # a phase below is folded into the rest
_INDENT: Final = 6
_BEHIND_NAME: Final = 10  # "TraceML · "
_LABEL: Final = 12  # of the rows below the bars
_MAX_PHASE: Final = 22
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_MS_UNTIL: Final = 10_000  # from here on times are spoken in s, min, h


class _Bar(NamedTuple):
    label: str
    ms: float
    pct: float


def card(report: Report, *, width: int = WIDTH, ascii_only: bool = False, cwd: str = "") -> str:
    """The card of a run.

    Args:
        report: A Report; nothing else is looked at.
        width: Columns, at least 60. No line but a path is wider.
        ascii_only: For a stream whose encoding cannot carry the bars' blocks.
        cwd: Paths below this folder are shown relative to it.

    Returns:
        Lines without escape sequences or control characters, a newline at the end.
    """
    text = "\n".join(line.rstrip() for line in _lines(report, width, ascii_only=ascii_only, cwd=cwd)) + "\n"
    return columns.to_ascii(text) if ascii_only else text


def _lines(report: Report, width: int, *, ascii_only: bool, cwd: str) -> Iterator[str]:
    yield from _first_lines(report, width)
    yield ""
    yield from _hanging("", headline(report), width, indent=0, behind=2)
    for label, text in (
        ("price", price(report)),
        ("next", clean(report.verdict.next)),
        ("why", clean(report.verdict.why)),
    ):
        if text:
            yield from _hanging(f"{label:<7}", text, width, indent=2)
    yield ""
    bars = list(_bars(report))
    if bars:
        yield from _draw(report, bars, width, ascii_only=ascii_only)
        yield ""
    for label, text in _facts(report):
        yield from _hanging(f"{label:<{_LABEL}}", text, width, indent=_INDENT)
    yield from _place(report, width, cwd)


def _hanging(label: str, text: str, width: int, *, indent: int, behind: int = 0) -> Iterator[str]:
    room = width - indent - columns.width_of(label) - behind
    for at, line in enumerate(columns.wrap(text, room)):
        yield " " * indent + (label if at == 0 else " " * (columns.width_of(label) + behind)) + line


def _first_lines(report: Report, width: int) -> Iterator[str]:
    run = report.run
    steps = plural(run.steps, "inferred step" if run.inferred else "step")
    steps = f"up to {steps}" if groups_of(report) else steps
    took, ended = seconds(run.duration_s), ending(run)
    ranks = [plural(run.world_size, "rank")] if run.steps or report.coverage.ranks else []  # else nobody is one
    if ended:
        said = [f"{ended} after {steps} in {took}", *ranks]
    elif run.status == "running":
        said = [f"running: {steps} in {took}", *ranks, *_as_of(run)]
    else:
        said = [f"{steps} in {took}", *ranks, clean(run.status)]
    name, behind = f"TraceML · {clean(run.name)}", " · ".join(said)
    if columns.width_of(f"{name} · {behind}") <= width:
        yield f"{name} · {behind}"
        return
    yield columns.fit(name, width)
    for line in _joined(said, width - _BEHIND_NAME):
        yield from _hanging(" " * _BEHIND_NAME, line, width, indent=0)


def _as_of(run: RunInfo) -> tuple[str, ...]:
    """Said of a running run whose data stands still: its collector is stopped, or gone, or the disk is slow."""
    return (f"as of {seconds(run.data_age_s)} ago",) if run.data_age_s and run.data_age_s > STALE_S else ()


def _bars(report: Report) -> Iterator[_Bar]:
    folded_ms, folded_pct, is_any = 0.0, 0.0, False
    for phase, info in report.step_time.phases.items():
        if info.pct is None or info.mean_ms is None:
            continue
        is_any = True
        if info.pct >= _SHOWN_PCT:
            yield _Bar(columns.fit(phase_in_words(phase), _MAX_PHASE), info.mean_ms, info.pct)
        else:
            folded_ms, folded_pct = folded_ms + info.mean_ms, folded_pct + info.pct
    if is_any and folded_ms:
        yield _Bar("other", folded_ms, folded_pct)


def _draw(report: Report, bars: list[_Bar], width: int, *, ascii_only: bool) -> Iterator[str]:
    period = report.step_time.period_ms
    longest = period.mean or max(bar.ms for bar in bars)
    times = [_aligned(bar.ms, longest) for bar in bars]
    step = _aligned(period.mean, longest) if period.mean is not None else ""
    label_width = max(_LABEL, *(columns.width_of(bar.label) + 2 for bar in bars))
    time_width = max(len(text) for text in (*times, step))
    left = _INDENT + label_width + time_width + 2 + len("100 %") + 2
    for bar, text in zip(bars, times):
        row = " " * _INDENT + columns.pad(bar.label, label_width) + text.rjust(time_width)
        # Of the times, as the sentence has it: the percentages are rounded to tenths already, and 61.46 would be 62.
        share = bar.ms / period.mean if period.mean else bar.pct / 100
        yield row + f"  {units.percent(share):>5}  " + _block(share * (width - left), ascii_only=ascii_only)
    row = " " * _INDENT + columns.pad("step", label_width) + step.rjust(time_width) + "  "
    for line in _joined(_spread(report), width - len(row)):
        yield row + line
        row = " " * len(row)


def _aligned(ms: float, longest_ms: float) -> str:
    """A time in the unit and with the decimals that give the longest one three digits, so that points stand in line."""
    unit, size = ("s", 1000.0) if longest_ms >= _MS_UNTIL else ("ms", 1.0)
    decimals = max(1, 2 - math.floor(math.log10(longest_ms / size))) if longest_ms > 0 else 1
    return f"{ms / size:,.{decimals}f} {unit}"


def _block(cells: float, *, ascii_only: bool) -> str:
    if ascii_only:
        return "#" * round(cells)
    whole, part = divmod(round(cells * 8), 8)
    return "█" * whole + _EIGHTHS[part].strip()


def _joined(parts: Sequence[str], room: int) -> Iterator[str]:
    """The parts with dots between them, on as many lines as they need; a part is never divided. At least one line."""
    line = ""
    for part in parts:
        joined = f"{line} · {part}" if line else part
        if line and columns.width_of(joined) > room:
            yield line
            joined = part
        line = joined
    yield line


def _spread(report: Report) -> list[str]:
    period = report.step_time.period_ms
    known = [("p50", period.p50), ("p95", period.p95), ("p99", period.p99), ("max", period.max)]
    say = millis if period.mean is not None and period.mean >= _MS_UNTIL else units.significant
    return [f"{name} {say(value)}" for name, value in known if value is not None]


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    yield from (("besides", text) for text in findings_in_words(report))
    for label, text in (
        ("now", stall_in_words(report) or now_in_words(report)),
        ("clock", clock_in_words(report)),
        ("restarts", restarts_in_words(report)),
        ("died", deaths_in_words(report)),
        *(("ranks" if at == 0 else "", text) for at, text in enumerate(ranks_in_words(report))),
        ("speed", speed_in_words(report)),
        ("memory", memory_in_words(report.step_memory)),
        ("also", also_in_words(report)),
    ):
        if text:
            yield label, text
    yield from (("note", note) for note in notes_in_words(report))


def _place(report: Report, width: int, cwd: str) -> Iterator[str]:
    """Where the run's files are. A path is never broken: one that does not fit has a line of its own, of any width."""
    if not report.run.folder:
        return
    folder = columns.printable(report.run.folder.rstrip("/"))
    if cwd and folder.startswith(cwd.rstrip("/") + "/"):
        folder = folder[len(cwd.rstrip("/")) + 1 :]
    label, path = ("folder", folder) if report.run.status == "running" else ("files", f"{folder}/final_summary.json")
    row = " " * _INDENT + f"{label:<{_LABEL}}"
    if columns.width_of(row + path) <= width:
        yield row + path
    else:
        yield row
        yield f"  {path}"
