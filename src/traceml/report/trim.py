"""Keeps a Report small: what is least missed goes first, and each cut leaves a note."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Callable, Final, Mapping

from traceml.report.contract import BlockInfo, RankRow
from traceml.report.files import summary_text
from traceml.report.shares import rounded

if TYPE_CHECKING:
    from traceml.report.contract import Report

#: 1 KB below the promised 32 KB, for the notes that the cuts leave.
MAX_BYTES: Final = 31 * 1024
_LONGEST_TEXT: Final = 200
_MAX_NOTES: Final = 20


def trimmed(report: Report, max_bytes: int = MAX_BYTES) -> Report:
    """The report within `max_bytes` as far as cuts can reach; unchanged when it fits.

    The order: small phases of blocks (under 0.5, 2, then 5 % of the block's period), events (the last ones in the
    report's order, down to 50, 20, 5), long texts, small phases of `by_rank`, rows of `by_rank` (down to 8, 4, 2), and
    at last blocks (every two become one, to 32, then 16).
    """
    said: dict[str, str] = {}  # of each kind of cut the last one
    for cut, note in _CUTS:
        if size_of(_noted(report, said)) <= max_bytes:
            break
        found = cut(report)
        if found != report:
            said[note.partition(":")[0]] = note
            report = found
    return _noted(report, said)


def _noted(report: Report, said: Mapping[str, str]) -> Report:
    notes = (*report.coverage.notes, *said.values())
    return replace(report, coverage=replace(report.coverage, notes=notes))


def size_of(report: Report) -> int:
    """The bytes of the report's file."""
    return len(summary_text(report).encode("utf-8", "backslashreplace"))


def _large(values: Mapping[str, float], floor: float) -> dict[str, float]:
    return {name: value for name, value in values.items() if value >= floor}


def _small_phases(share: float) -> Callable[[Report], Report]:
    def cut(report: Report) -> Report:
        time = report.step_time
        blocks = tuple(replace(b, mean_ms=_large(b.mean_ms, share * b.period_ms)) for b in time.blocks)
        return replace(report, step_time=replace(time, blocks=blocks))

    return cut


def _fewer_events(keep: int) -> Callable[[Report], Report]:
    return lambda report: replace(report, events=report.events[:keep])


def _small_phases_of_ranks(report: Report) -> Report:
    def cut(row: RankRow) -> RankRow:
        floor = 0.02 * (row.period_ms or 0)
        return replace(row, phases_ms={n: v for n, v in row.phases_ms.items() if v is not None and v >= floor})

    ranks = report.step_time.ranks
    found = replace(ranks, by_rank=tuple(cut(row) for row in ranks.by_rank))
    return replace(report, step_time=replace(report.step_time, ranks=found))


def _fewer_ranks(keep: int) -> Callable[[Report], Report]:
    def cut(report: Report) -> Report:
        ranks = replace(report.step_time.ranks, by_rank=report.step_time.ranks.by_rank[:keep])
        return replace(report, step_time=replace(report.step_time, ranks=ranks))

    return cut


def _half_the_blocks(report: Report) -> Report:
    blocks = report.step_time.blocks
    pairs = [blocks[i : i + 2] for i in range(0, len(blocks), 2)]
    merged = tuple(_merge(*pair) if len(pair) == 2 else pair[0] for pair in pairs)  # noqa: PLR2004  # a pair
    return replace(report, step_time=replace(report.step_time, blocks=merged))


def _merge(one: BlockInfo, two: BlockInfo) -> BlockInfo:
    steps = one.steps + two.steps

    def weigh(a: float, b: float) -> float:
        return rounded((a * one.steps + b * two.steps) / steps)

    names = dict.fromkeys((*one.mean_ms, *two.mean_ms))
    mean_ms = {name: weigh(one.mean_ms.get(name, 0.0), two.mean_ms.get(name, 0.0)) for name in names}
    walls = (one.wall_period_ms, two.wall_period_ms)
    wall = None if walls[0] is None or walls[1] is None else weigh(walls[0], walls[1])
    return BlockInfo(steps, weigh(one.period_ms, two.period_ms), mean_ms, wall)


def _short_texts(report: Report) -> Report:
    def short(text: str) -> str:
        return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"

    time, cover = report.step_time, report.coverage
    findings = tuple(replace(f, why=short(f.why), next=short(f.next), rule=short(f.rule)) for f in time.findings)
    notes = tuple(short(note) for note in cover.notes[:_MAX_NOTES])
    if len(cover.notes) > _MAX_NOTES:
        notes = (*notes, f"{len(cover.notes) - _MAX_NOTES} further notes are left out to keep the summary small")
    faults = tuple(replace(fault, error=short(fault.error)) for fault in cover.faults)
    cover = replace(cover, notes=notes, faults=faults)
    run = report.run
    run = replace(run, exception=short(run.exception), first_death=short(run.first_death), script=short(run.script))
    return replace(report, run=run, coverage=cover, step_time=replace(time, findings=findings))


_CUTS: Final[tuple[tuple[Callable[[Report], Report], str], ...]] = (
    (_small_phases(0.005), "blocks: phases under 0.5 % are left out to keep the summary small"),
    (_small_phases(0.02), "blocks: phases under 2 % are left out to keep the summary small"),
    (_small_phases(0.05), "blocks: phases under 5 % are left out to keep the summary small"),
    (_fewer_events(50), "events: only the first 50 kept to keep the summary small"),
    (_fewer_events(20), "events: only the first 20 kept to keep the summary small"),
    (_fewer_events(5), "events: only the first 5 kept to keep the summary small"),
    (_short_texts, "texts: long ones are cut to keep the summary small"),
    (_small_phases_of_ranks, "by_rank: phases under 2 % are left out to keep the summary small"),
    (_fewer_ranks(8), "rows of by_rank: only the first 8 kept to keep the summary small"),
    (_fewer_ranks(4), "rows of by_rank: only the first 4 kept to keep the summary small"),
    (_fewer_ranks(2), "rows of by_rank: only the first 2 kept to keep the summary small"),
    (_half_the_blocks, "number of blocks: every two became one to keep the summary small"),
    (_half_the_blocks, "number of blocks: every four became one to keep the summary small"),
)
