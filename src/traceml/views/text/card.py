"""Draws the card: a run on 80 columns of plain text, the sentence first, then price, next step and evidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Iterator, NamedTuple, Sequence

from traceml.report.contract import STALE_S
from traceml.schema import phases, units
from traceml.schema.stalls import DEATHS
from traceml.views.text import columns
from traceml.views.text.columns import clean
from traceml.views.text.happened import FAILED, event_in_words, of_any_rank
from traceml.views.text.price import price
from traceml.views.text.ranks import deaths_in_words, ranks_in_words, restarts_in_words, stall_in_words
from traceml.views.text.words import ending, headline, millis, plural, seconds, spoken

if TYPE_CHECKING:
    from traceml.report.contract import Report, RunInfo, StepMemoryInfo

WIDTH: Final = 80
_SHOWN_PCT: Final = 0.5  # a phase below is folded into the rest
_INDENT: Final = 6
_BEHIND_NAME: Final = 10  # "TraceML · "
_LABEL: Final = 12  # of the rows below the bars
_MAX_PHASE: Final = 22
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_MAX_NOTES: Final = 4
_MAX_EVENTS: Final = 5
_WAIT_PCT: Final = 10.0  # a process that waits less for a core waits as all do
_MS_UNTIL: Final = 10_000  # from here on times are spoken in s, min, h
_MAX_FINDINGS: Final = 3
_UNREMARKABLE: Final = frozenset({"NORMAL", "NO_DATA"})


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
    took, ended = seconds(run.duration_s), ending(run)
    ranks = [plural(run.world_size, "rank")] if run.steps or report.coverage.ranks else []  # else nobody is one
    if ended:
        said = [f" after {steps} in {took}", *ranks]
    elif run.status == "running":
        said = [f"running: {steps} in {took}", *ranks, *_as_of(run)]
    else:
        said = [f"{steps} in {took}", *ranks, clean(run.status)]
    name, behind = f"TraceML · {clean(run.name)}", " · ".join(said)
    if columns.width_of(f"{name} · {ended or ''}{behind}") <= width:
        yield f"{name} · {ended or ''}{behind}"
        return
    yield columns.fit(name, width)
    ended = columns.fit(ended, max(1, width - _BEHIND_NAME - columns.width_of(behind))) if ended else ""
    yield columns.fit(f"{'':{_BEHIND_NAME}}{ended}{behind}", width)


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
            yield _Bar(columns.fit(_label(phase), _MAX_PHASE), info.mean_ms, info.pct)
        else:
            folded_ms, folded_pct = folded_ms + info.mean_ms, folded_pct + info.pct
    if is_any and folded_ms:
        yield _Bar("other", folded_ms, folded_pct)


def _label(phase: str) -> str:
    known = phase in phases.LABELS or phase.startswith(phases.REGION_PREFIX)
    return clean(phases.label(phase) if known else phase) or "?"


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
    yield from (("besides", text) for text in _besides(report))
    for label, text in (
        ("now", stall_in_words(report) or _now(report)),
        ("clock", _clock_row(report)),
        ("restarts", restarts_in_words(report)),
        ("died", deaths_in_words(report)),
        *(("ranks" if at == 0 else "", text) for at, text in enumerate(ranks_in_words(report))),
        ("speed", _speed(report)),
        ("memory", _memory(report.step_memory)),
        ("also", _also(report)),
    ):
        if text:
            yield label, text
    yield from (("note", note) for note in _notes(report))


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


def _besides(report: Report) -> Iterator[str]:
    """What else was found, beside the verdict."""
    sections = (report.step_time.findings, report.step_memory.findings, report.system.findings)
    found = [finding for section in sections for finding in section]
    others = [f for f in found if f.diagnosis != report.verdict.diagnosis and f.diagnosis not in _UNREMARKABLE]
    yield from (spoken(finding) for finding in others[:_MAX_FINDINGS])
    if len(others) > _MAX_FINDINGS:
        yield f"{plural(len(others) - _MAX_FINDINGS, 'further finding')} in the JSON"


def _now(report: Report) -> str:
    live = report.run.live
    if not live or report.run.status != "running":
        return ""
    phase, since, step, rank = (live.get(key) for key in ("phase", "since_s", "step", "rank"))
    where = f"rank {rank}, " if report.run.world_size > 1 and isinstance(rank, int) else ""
    at = f"step {units.count(step)}" if isinstance(step, int) else "before the first step"
    told = f", in {_label(phase)}" if isinstance(phase, str) and phase else ""
    since_text = f" for {seconds(since)}" if told and isinstance(since, (int, float)) and since >= 0 else ""
    return f"{where}{at}{told}{since_text}"


def _clock_row(report: Report) -> str:
    """Which clock the verdict is on; said beside a device only, elsewhere there is one."""
    if report.run.device.startswith("cpu"):
        return ""
    if report.step_time.clock != "device":
        note = clean(report.coverage.clock_note)
        return f"the host's ({note})" if note else "the host's"
    wall = report.step_time.wall_period_ms
    if wall is None or wall.mean is None:
        return "the device's"
    return f"the device's; a step takes {millis(wall.mean)} of the wall"


def _speed(report: Report) -> str:
    rate = report.throughput
    told = []
    if rate.samples_per_s is not None:
        wall = rate.wall_samples_per_s
        behind = f" ({units.significant(wall)} of the wall)" if wall is not None else ""
        told.append(f"{units.significant(rate.samples_per_s)} samples/s of training{behind}")
    if rate.tokens_per_s is not None:
        told.append(f"{units.significant(rate.tokens_per_s)} tokens/s")
    if rate.steps_per_s is not None:
        told.append(f"{units.significant(rate.steps_per_s)} steps/s")
    return " · ".join(told)


def _memory(memory: StepMemoryInfo) -> str:
    held, peak = memory.allocated_bytes, memory.peak_bytes
    if held is None or held.p50 is None:
        return ""
    words = {"BALANCED": "steady: "}
    told = words.get(memory.diagnosis or "", f"{clean(memory.diagnosis).lower()}: " if memory.diagnosis else "")
    told += f"{units.size(held.p50)} held"
    most = peak.max if peak and peak.max is not None else held.max
    if most is not None:
        told += f", {units.size(most)} peak"
    if memory.capacity_bytes:
        told += f" of {units.size(memory.capacity_bytes)}"
    return told + (" (process)" if memory.source == "rss" else "")


def _also(report: Report) -> str:
    run = report.run
    told = []
    if run.startup_s is not None:
        told.append(f"startup {seconds(run.startup_s)}")
    if run.warmup_steps:
        took = f" ({seconds(run.warmup_s)})" if run.warmup_s is not None else ""
        told.append(f"{plural(run.warmup_steps, 'warm-up step')}{took}")
    events = of_any_rank([event for event in report.events if event.kind not in DEATHS])
    told += [event_in_words(event) for event in events[:_MAX_EVENTS]]
    if len(events) > _MAX_EVENTS:
        told.append(f"{plural(len(events) - _MAX_EVENTS, 'further kind')} of events in the JSON")
    if run.failed_steps and not any(event.kind == FAILED for event in report.events):
        told.append(plural(run.failed_steps, "failed step"))
    if run.halted_steps:
        told.append(f"{plural(run.halted_steps, 'step')} left out: stopped or in a debugger")
    waited_pct = report.process.waited_for_core_pct
    if waited_pct is not None and waited_pct >= _WAIT_PCT:
        who = "a rank " if run.world_size > 1 else ""
        told.append(f"{who}waited for a core {units.percent(waited_pct / 100)} of the time")
    if report.overhead is not None:
        told.append(f"tracing {units.percent(report.overhead.pct / 100)}")
    return " · ".join(told)


def _notes(report: Report) -> Iterator[str]:
    cover = report.coverage
    notes = [clean(note) for note in cover.notes]
    for fault in cover.faults:
        off = "; switched off" if fault.off else ""
        error = f": {clean(fault.error)}" if fault.error else ""
        notes.append(f"a fault of TraceML in {clean(fault.hook)}, {units.count(fault.count)} times{off}{error}")
    yield from notes[:_MAX_NOTES]
    if len(notes) > _MAX_NOTES:
        yield f"{plural(len(notes) - _MAX_NOTES, 'further note')} in the JSON"
