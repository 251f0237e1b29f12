"""Draws the period as a bar, a segment a phase, and the legend that names them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Collection, Final, NamedTuple, Sequence

from traceml.schema import phases
from traceml.views.terminal import cells, rows
from traceml.views.terminal.palette import PLAIN, Style, sign_of
from traceml.views.text.words import millis

if TYPE_CHECKING:
    from traceml.report.contract import Report, StepTimeInfo
    from traceml.views.terminal.rows import Row

REST: Final = "rest"
OTHER: Final = "other"  # the rest, and what had no room in the legend
#: Where a label has no room for more than 9 cells.
SHORT: Final = {
    phases.SYNC: "waits",
    phases.H2D: "copies",
    phases.CHECKPOINT: "saves",
    phases.GC: "garbage",
    phases.IN_STEP: "in step",
    phases.BETWEEN_STEPS: "between",
}
_SHOWN_PCT: Final = 1.0  # a phase below is part of the rest
_RESTS: Final = (phases.IN_STEP, phases.BETWEEN_STEPS, phases.GC)
_MAX_LABEL: Final = 18
_GAP: Final = "  "
_MS_UNTIL: Final = 10_000


class Part(NamedTuple):
    """A segment: its phase (or `rest`), what people call it, its mean time and its percentage of the period."""

    phase: str
    label: str
    ms: float
    pct: float


def parts_of(step_time: StepTimeInfo, *, named: Collection[str] = ()) -> list[Part]:
    """The phases of at least 1 % of the period, in the order of every face; all else is the rest, and comes last.

    Args:
        step_time: The report's.
        named: What the verdict speaks of: not part of the rest, even where it is what no hook sees.
    """
    found, rest_ms, rest_pct = [], 0.0, 0.0
    for phase, info in step_time.phases.items():
        if info.pct is None or info.mean_ms is None or not 0 < info.pct < math.inf or not math.isfinite(info.mean_ms):
            continue
        if info.pct < _SHOWN_PCT or (phase in _RESTS and phase not in named):
            rest_ms, rest_pct = rest_ms + info.mean_ms, rest_pct + info.pct
        else:
            found.append(Part(phase, label_of(phase), info.mean_ms, info.pct))
    return [*found, Part(REST, REST, rest_ms, rest_pct)] if rest_pct > 0 else found


def blamed(report: Report) -> tuple[str, ...]:
    """The phases that the first finding of the step time speaks of."""
    return tuple(name for finding in report.step_time.findings[:1] for name in finding.phases)


def folded(parts: Sequence[Part], columns: int, *, kept: Collection[str] = ()) -> list[Part]:
    """The parts that a legend of so many cells can name; the smallest ones are one, `other`, at the end.

    Args:
        parts: As `parts_of` gives them.
        columns: The legend's.
        kept: Phases that the verdict speaks of: they are named as long as anything is.
    """
    found = shortened(parts, columns)
    while len(found) > 2 and _width(found) > columns:  # noqa: PLR2004  # one and the others
        rest = [part for part in found if part.phase == REST]
        named = [part for part in found if part.phase != REST]
        least = min(named, key=lambda part: (part.phase in kept, part.pct))
        named.remove(least)
        together = [least, *rest]
        ms, pct = sum(part.ms for part in together), sum(part.pct for part in together)
        found = [*named, Part(REST, OTHER, ms, pct)]
    return found


def shortened(parts: Sequence[Part], columns: int) -> list[Part]:
    """The parts by short names where the legend of all would be wider than so many cells."""
    if _width(list(parts)) <= columns:
        return list(parts)
    return [part._replace(label=SHORT.get(part.phase, part.label)) for part in parts]


def _width(parts: Sequence[Part]) -> int:
    return rows.width(_legend(parts, is_ascii=False)) if parts else 0


def label_of(phase: str) -> str:
    """What people call a phase, as a legend has room for it."""
    known = phase in phases.LABELS or phase.startswith(phases.REGION_PREFIX)
    return cells.fit(cells.clean(phases.label(phase) if known else phase) or "?", _MAX_LABEL)


def bar(parts: Sequence[Part], columns: int, *, is_ascii: bool = False) -> Row:
    """The segments on exactly `columns` cells, each at least one; none where there is nothing to show, or no room."""
    if not parts or columns < len(parts):
        return []
    total = sum(part.pct for part in parts)
    spare = columns - len(parts)
    exact = [part.pct / total * columns - 1 for part in parts]
    scale = spare / (sum(max(0.0, share) for share in exact) or 1.0)
    wanted = [max(0.0, share) * scale for share in exact]
    sizes = [1 + int(size) for size in wanted]
    for at in sorted(range(len(parts)), key=lambda i: int(wanted[i]) - wanted[i])[: columns - sum(sizes)]:
        sizes[at] += 1
    return [_segment(part.phase, size, is_ascii=is_ascii) for part, size in zip(parts, sizes)]


def legend(parts: Sequence[Part], columns: int, *, is_ascii: bool = False, kept: Collection[str] = ()) -> Row:
    """`█ input 35.6  ▓ forward 21.1 ms`: the segments' names and times; the smallest go first, `kept` at last."""
    shown = list(parts)
    while shown:
        row = _legend(shown, is_ascii=is_ascii)
        if rows.width(row) <= columns:
            return row
        shown.remove(min(shown, key=lambda part: (part.phase in kept, part.pct)))
    return []


def _legend(parts: Sequence[Part], *, is_ascii: bool) -> Row:
    row: Row = []
    whole_ms = sum(part.ms for part in parts)
    is_long = whole_ms >= _MS_UNTIL
    decimals = max(0, 2 - math.floor(math.log10(whole_ms))) if 0 < whole_ms < _MS_UNTIL else 1
    for part in parts:
        told = millis(part.ms) if is_long else f"{part.ms:,.{decimals}f}"
        row += [(_GAP * bool(row), PLAIN), _segment(part.phase, 1, is_ascii=is_ascii), (f" {part.label} {told}", PLAIN)]
    return row if is_long else [*row, (" ms", PLAIN)]


def _segment(phase: str, size: int, *, is_ascii: bool) -> tuple[str, Style]:
    sign = sign_of(phase)
    return (sign.ascii if is_ascii else sign.block) * size, Style(sign.ink)
