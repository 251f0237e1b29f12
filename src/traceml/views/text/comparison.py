"""Draws a comparison on 80 columns of plain text: the sentence first, where the time moved, then the evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Iterator, NamedTuple, Optional, Sequence

from traceml.report.compare.sentences import decimals_for, percent, phase_label, signed, size_of
from traceml.report.compare.times import REST, STEP
from traceml.schema import units
from traceml.views.text import columns
from traceml.views.text.columns import clean
from traceml.views.text.words import seconds

if TYPE_CHECKING:
    from traceml.report.compare.contract import Comparison, PhaseChange, Quantity, RunBrief

WIDTH: Final = 80
_INDENT: Final = 6
_LABEL: Final = 12
_MAX_PHASE: Final = 22
_AGAIN: Final = 5  # columns of " (12)"
_SHOWN_SHARE: Final = 0.005  # of the step; a smaller phase that did not move is folded into the rest
_MAX_NOTES: Final = 4
_ENDS: Final = {"failed": "Failed", "killed": "Killed", "unknown": "Ended unseen", "running": "Still running"}
_BARS: Final = 14  # columns a direction
_NAMES: Final = {
    "samples_per_s": ("speed", "samples/s"),
    "tokens_per_s": ("speed", "tokens/s"),
    "steps_per_s": ("speed", "steps/s"),
    "held_bytes": ("memory", "held"),
    "peak_bytes": ("memory", "peak"),
    "startup_s": ("start", ""),
}


class Row(NamedTuple):
    """A row of the waterfall as it is read; `change_ms` is None where no bar is drawn: did not move, or the step."""

    label: str
    before: str
    after: str
    change: str
    interval: str  # as numbers
    is_chance: bool
    change_ms: Optional[float]


def comparison_card(found: Comparison, *, width: int = WIDTH, ascii_only: bool = False) -> str:
    """The comparison.

    Args:
        found: What was compared; nothing else is looked at.
        width: Columns, at least 60. No line is wider.
        ascii_only: For a stream whose encoding cannot carry blocks and arrows.

    Returns:
        Lines without escape sequences or control characters, a newline at the end.
    """
    text = "\n".join(line.rstrip() for line in _lines(found, width, ascii_only=ascii_only)) + "\n"
    return columns.to_ascii(text) if ascii_only else text


def headline(found: Comparison) -> str:
    """The verdict's name and sentence."""
    return f"{clean(found.verdict.diagnosis)}: {clean(found.verdict.summary)}"


def facts(found: Comparison) -> Iterator[tuple[str, str]]:
    """Label and text of everything below the waterfall, in order."""
    for label in ("speed", "memory", "start"):
        told = [_quantity(row) for row in found.quantities if _is_known(row, label)]
        if told:
            yield label, " · ".join(told)
    for row in found.ranks:
        is_one = row.before_rank == row.after_rank
        rank = f"rank {row.before_rank}" if is_one else f"rank {row.before_rank}, then {row.after_rank}"
        yield "ranks", f"{clean(row.which)} {rank}: {_ms(row.before_ms)} → {_ms(row.after_ms)} of its own work a step"
    if found.changed:
        yield "changed", " · ".join(clean(text) for text in found.changed)
    for label, runs in (("before", found.before), ("after", found.after)):
        yield from ((label, text) for text in _briefs(runs))
    yield from (("note", clean(note)) for note in found.notes[:_MAX_NOTES])


def table(found: Comparison) -> list[Row]:
    """The waterfall as it is read: small phases that did not move are in the rest; the last row is the step."""
    rows = _folded(found.phases)
    if not rows:
        return []
    size, unit = size_of([value for row in rows for value in (row.before_ms, row.after_ms)])
    # Three digits for the largest phase: the step, which is longer, then has at most four.
    parts = [row for row in rows if row.phase != STEP] or rows
    decimals = decimals_for([value / size for row in parts for value in (row.before_ms, row.after_ms)])
    labels = _unique([columns.fit(clean(phase_label(row.phase)), _MAX_PHASE) for row in rows])
    return [
        Row(
            label,
            _time(row, "before", f"{row.before_ms / size:,.{decimals}f} {unit}"),
            _time(row, "after", f"{row.after_ms / size:,.{decimals}f} {unit}"),
            f"{signed(row.change_ms / size, decimals)} {unit}",
            _interval(row, size, decimals),
            # Phases that changed alike were told from chance together.
            not row.moved and row.phase != STEP and row.low_ms is not None and found.verdict.alike_pct is None,
            row.change_ms if row.moved and row.phase != STEP else None,
        )
        for label, row in zip(labels, rows)
    ]


def whose(found: Comparison) -> str:
    """Of several ranks, whose phases the waterfall shows; of one nothing."""
    return "median rank" if found.ranks and found.phases else ""


def _unique(labels: Sequence[str]) -> list[str]:
    """The labels; of those that are alike when cut or clean, a second one says that it is another."""
    found: list[str] = []
    for label in labels:
        again = sum(label == other for other in labels[: len(found)])
        found.append(f"{columns.fit(label, _MAX_PHASE - _AGAIN)} ({again + 1})" if again else label)
    return found


def _lines(found: Comparison, width: int, *, ascii_only: bool) -> Iterator[str]:
    yield columns.fit(f"TraceML compare · {_side(found.before)} → {_side(found.after)}", width)
    yield ""
    yield from _hanging("", headline(found), width, indent=0, behind=2)
    verdict = found.verdict
    for label, text in (("where", verdict.where), ("next", verdict.next), ("basis", verdict.basis)):
        if text:
            yield from _hanging(f"{label:<7}", clean(text), width, indent=2)
    yield ""
    cells = table(found)
    if cells:
        yield from _waterfall(cells, width, whose=whose(found), ascii_only=ascii_only)
        yield ""
    last = ""
    for label, text in facts(found):
        yield from _hanging(f"{label if label != last else '':<{_LABEL}}", text, width, indent=_INDENT)
        last = label


def _hanging(label: str, text: str, width: int, *, indent: int, behind: int = 0) -> Iterator[str]:
    room = width - indent - columns.width_of(label) - behind
    for at, line in enumerate(columns.wrap(text, room)):
        yield " " * indent + (label if at == 0 else " " * (columns.width_of(label) + behind)) + line


def _side(runs: Sequence[RunBrief]) -> str:
    name = columns.fit(clean(runs[0].name), 28)
    return name if len(runs) == 1 else f"{name} and {len(runs) - 1} more"


def _waterfall(rows: list[Row], width: int, *, whose: str, ascii_only: bool) -> Iterator[str]:
    rows = [Row(whose, "before", "after", "change", "", is_chance=False, change_ms=None), *rows]
    cells = [(*row[:4], "within chance" if row.is_chance else row.interval) for row in rows]
    label, before, after, change, interval = (max(columns.width_of(text) for text in texts) for texts in zip(*cells))
    label = max(label, _LABEL - 2)
    room = min(_BARS, width - _INDENT - label - before - after - change - interval - 5 * 2)
    most = max((abs(row.change_ms) for row in rows if row.change_ms is not None), default=0.0)
    for row, (*_, said) in zip(rows, cells):
        line = " " * _INDENT + columns.pad(row.label, label)
        line += f"  {row.before:>{before}}  {row.after:>{after}}  {row.change:>{change}}  "
        line += columns.pad(said, interval)
        if row.change_ms is not None and most > 0 and room > 0:
            line += "  " + _bar(row.change_ms / most * room, ascii_only=ascii_only)
        yield columns.fit(line, width)  # of numbers that a summary can hold, not a training


def _bar(cells: float, *, ascii_only: bool) -> str:
    """More time as full blocks, less as light ones: told apart without colour, and without the sign."""
    full, light = ("+", "-") if ascii_only else ("█", "░")
    return (full if cells > 0 else light) * round(abs(cells))


def _time(row: PhaseChange, side: str, text: str) -> str:
    return text if row.only in (None, side) else "not there"


def _interval(row: PhaseChange, size: float, decimals: int) -> str:
    if row.low_ms is None or row.high_ms is None:
        return "not told"
    return f"[{signed(row.low_ms / size, decimals)} to {signed(row.high_ms / size, decimals)}]"


def _folded(rows: Sequence[PhaseChange]) -> list[PhaseChange]:
    """The rows that are shown; small ones that did not move go into the rest, so that all still add up."""
    whole = next((row for row in rows if row.phase == STEP), None)
    if whole is None:
        return []
    least = _SHOWN_SHARE * max(whole.before_ms, whole.after_ms)
    shown = [
        row
        for row in rows
        if row.phase not in (STEP, REST) and (row.moved or max(row.before_ms, row.after_ms) >= least)
    ]
    if not shown:
        return [whole]  # the step alone was compared
    before, after, change = (
        getattr(whole, key) - sum(getattr(row, key) for row in shown) for key in ("before_ms", "after_ms", "change_ms")
    )
    rest = next((row for row in rows if row.phase == REST), None)
    if max(before, after) < least / 10 and not (rest and rest.moved):
        return [*shown, whole]
    moved = bool(rest and rest.moved)
    inside = [rest] if rest and rest.moved else [row for row in rows if row not in (*shown, whole)]
    low, high = (_end_of(inside, key, change) for key in ("low_ms", "high_ms"))
    made = replace(
        whole, phase=REST, before_ms=max(0.0, before), after_ms=max(0.0, after), change_ms=change, low_ms=low,
        high_ms=high, moved=moved,
    )  # fmt: skip
    return [*shown, made, whole]


def _end_of(inside: Sequence[PhaseChange], key: str, change: float) -> Optional[float]:
    """An end of the interval of several rows together: the widest of theirs, for the drift can have met any, once."""
    ends = [(getattr(row, key), row.change_ms) for row in inside]
    if any(end is None for end, _ in ends):
        return None
    return change + max((end - middle for end, middle in ends), key=abs, default=0.0)


def _is_known(row: Quantity, label: str) -> bool:
    return _NAMES.get(row.name, ("", ""))[0] == label and row.before is not None and row.after is not None


def _quantity(row: Quantity) -> str:
    name = _NAMES[row.name][1]
    before, after = (_value(row.name, value) for value in (row.before, row.after))
    pct = row.change_pct
    told = "" if pct is None else f" ({'+' * (pct > 0)}{percent(pct)} %)"
    if before == after and row.before is not None:
        return f"{before} {name}".strip() + " in both"
    number, _, unit = before.partition(" ")
    before = number if unit and after.endswith(f" {unit}") and " " not in unit else before
    return f"{before} → {after}{f' {name}' if name else ''}{told}"


def _value(name: str, value: Optional[float]) -> str:
    if value is None:
        return "not known"
    if name.endswith("_bytes"):
        return units.size(value)
    return seconds(value) if name.endswith("_s") and "_per_" not in name else units.significant(value)


def _briefs(runs: Sequence[RunBrief]) -> Iterator[str]:
    """What each run said of itself; of repeats with one diagnosis the first one's sentence, and how many said so."""
    groups: dict[tuple[str, str], list[RunBrief]] = {}
    for run in runs:
        groups.setdefault((run.diagnosis, run.status), []).append(run)
    for (diagnosis, status), group in groups.items():
        one = group[0]
        severity = "" if one.severity == "info" else f" ({clean(one.severity)})"
        many = f"{len(group)} of {len(runs)} runs, the first: " if len(runs) > 1 else ""
        ended = (
            ""
            if status == "completed"
            else f" {_ENDS.get(status, clean(status))} after {units.count(one.steps)} step{'s' * (one.steps != 1)}."
        )
        yield f"{many}{clean(diagnosis).replace('_', ' ')}{severity}: {clean(one.summary)}{ended}"


def _ms(value: float) -> str:
    return units.duration(value * 1e6)
