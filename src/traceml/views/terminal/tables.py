"""Sets phases, ranks, events and the host in rows for the full screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator, Mapping, Optional, Sequence

from traceml.schema import phases, units
from traceml.schema.stalls import DEATHS
from traceml.views.terminal import cells, state
from traceml.views.terminal.bar import label_of
from traceml.views.terminal.heat import HeatRow
from traceml.views.terminal.palette import ALARM, BOLD, DIM, PLAIN, Style, sign_of
from traceml.views.terminal.rows import cut, padded
from traceml.views.text.facts import events_of, memory_in_words, speed_in_words
from traceml.views.text.happened import event_in_words
from traceml.views.text.ranks import ranks_in_words, restarts_in_words

if TYPE_CHECKING:
    from traceml.report.contract import PhaseInfo, PhaseRanks, RankRow, Report
    from traceml.views.terminal.rows import Row
    from traceml.views.terminal.scene import Points, Scene

_NAME: Final = 20
_COLUMN: Final = 8
_LEAST_COLUMN: Final = 7  # holds a number of five digits, and `rank 1`
_WIDEST: Final = 11
_LEAST: Final = 9
_OWN_COLUMNS: Final = 3  # own work, how often it came last, the step
_RANK: Final = 10
_NOTE: Final = 8
_SHOWN_PCT: Final = 0.5


def rule(title: str, width: int, *, behind: str = "") -> Row:
    """`── title ─────`, with more words at its right end where they fit whole."""
    head = f"── {cells.fit(title, max(1, width - 8))} "
    end = f" {behind} ──" if behind and cells.width_of(head) + cells.width_of(behind) + 8 <= width else ""
    line = "─" * max(0, width - cells.width_of(head) - cells.width_of(end))
    return [(head, DIM), (line, DIM), (end, DIM)]


def phase_rows(report: Report, width: int, *, is_ascii: bool = False) -> list[Row]:
    """A heading and a row a phase: with several ranks the median and the worst one, else mean, share, p95 and max.

    Of two ranks neither is the median: both stand there by their names. A column that does not fit is left out.
    """
    ranks, both = report.step_time.ranks.phases, pair_of(report)
    if both:
        heads: tuple[str, ...] = tuple(f"rank {row.rank}" for row in both)
    else:
        heads = ("median", "worst", "rank") if ranks else ("mean", "share", "p95", "max")
    room = max(0, width - _NAME)
    column = min(_COLUMN, max(_LEAST_COLUMN, room // len(heads)))
    num_columns = room // column
    drawn: list[Row] = [[(" " * _NAME + "".join(f"{head:>{column}}" for head in heads[:num_columns]), DIM)]]
    for phase, info in report.step_time.phases.items():
        apart = ranks.get(phase)
        most_ms = max((row.phases_ms.get(phase) or 0.0 for row in both), default=0.0)
        if apart is not None and apart.worst_ms:
            most_ms = max(most_ms, apart.worst_ms)
        if not info.pct or info.mean_ms is None:
            continue
        if info.pct < _SHOWN_PCT and most_ms <= 2 * info.mean_ms:
            continue
        told = tuple(_ms(row.phases_ms.get(phase)) for row in both) if both else _of_phase(phase, info, apart, ranks)
        sign = sign_of(phase)
        name = cells.pad(cells.fit(label_of(phase), _NAME - 3), _NAME - 2)
        numbers = "".join(f"{text:>{column}}" for text in told[:num_columns])
        drawn.append([(sign.ascii if is_ascii else sign.block, Style(sign.ink)), (f" {name}", PLAIN), (numbers, PLAIN)])
    return drawn if len(drawn) > 1 else []


def _of_phase(
    phase: str, info: PhaseInfo, apart: Optional[PhaseRanks], ranks: Mapping[str, PhaseRanks]
) -> tuple[str, ...]:
    if apart is not None:
        # Who waits longest is nobody's fault, but the others': no rank is named for it.
        worst = None if phase == phases.SYNC else apart.worst
        return _ms(apart.median_ms), _ms(apart.worst_ms), "" if worst is None else str(worst)
    if ranks:
        return _ms(info.mean_ms), "", ""
    share = "" if info.pct is None else units.percent(info.pct / 100)
    return _ms(info.mean_ms), share, _ms(info.p95_ms), _ms(info.max_ms)


def pair_of(report: Report) -> tuple[RankRow, ...]:
    """The two ranks of a run that has no more, in order; none of others, or where one was never heard."""
    rows = sorted(report.step_time.ranks.by_rank, key=lambda row: row.rank)
    return tuple(rows) if report.run.world_size == len(rows) == 2 else ()  # noqa: PLR2004


def phase_title(report: Report) -> str:
    """What stands in the table of phases."""
    if pair_of(report):
        return "phases, ms: both ranks"
    return "phases, ms: median and worst rank" if report.step_time.ranks.phases else "phases, ms a step"


def rank_rows(report: Report, width: int) -> list[Row]:
    """A heading and a row a rank: every phase that some rank spends time in, own work, and how often it came last.

    Where there is no room for all, the phases that matter least are left out.
    """
    ranks = report.step_time.ranks
    if not ranks.by_rank:
        return []
    room = (width - _RANK - _NOTE) // _LEAST
    has_own = room > _OWN_COLUMNS and any(row.own_ms is not None for row in ranks.by_rank)
    shown = _weighty(report, max(0, room - (_OWN_COLUMNS if has_own else 1)))
    heads = [*(_short(phase) for phase in shown), *(("own", "last") if has_own else ()), "step"]
    column = min(_WIDEST, max(_LEAST, (width - _RANK - _NOTE) // len(heads)))
    lost = lost_ranks(report)
    drawn: list[Row] = [[(" " * _RANK + "".join(f"{head:>{column}}" for head in heads), DIM)]]
    for row in sorted(ranks.by_rank, key=lambda row: row.rank):
        told = [_ms(row.phases_ms.get(phase)) for phase in shown]
        if has_own:
            told += [_ms(row.own_ms), "" if row.last_pct is None else units.percent(row.last_pct / 100)]
        told.append(_ms(row.period_ms))
        is_worst, is_lost = row.rank == ranks.worst, row.rank in lost
        is_median = row.rank == ranks.median and not pair_of(report)
        note = "  lost" if is_lost else "  worst" if is_worst else "  median" if is_median else ""
        name = (f"{f' rank {row.rank}':<{_RANK}}", BOLD if is_worst else PLAIN)
        drawn.append(
            [name, ("".join(f"{text:>{column}}" for text in told), PLAIN), (note, ALARM if is_lost else PLAIN)]
        )
    return drawn


def _weighty(report: Report, most: int) -> list[str]:
    """The phases, in order, of which some rank spends at least 1 % of the period; of more than `most` the largest."""
    period = report.step_time.period_ms.mean or 0.0
    largest = {
        phase: max((row.phases_ms.get(phase) or 0.0) for row in report.step_time.ranks.by_rank)
        for phase in report.step_time.phases
    }
    kept = sorted((phase for phase, ms in largest.items() if ms and ms * 100 >= period), key=lambda p: -largest[p])[
        :most
    ]
    return [phase for phase in report.step_time.phases if phase in kept]


def heat_of(scene: Scene, metric: str, most: int) -> list[HeatRow]:
    """At most `most` ranks in order; with more, the worst and the lost stay and the last ones go."""
    report = scene.report
    found = scene.heat.get(metric, {})
    if report is None or most < 1:
        return []
    lost, worst = lost_ranks(report), report.step_time.ranks.worst
    kept = sorted(sorted(found, key=lambda rank: (rank not in lost, rank != worst, rank))[:most])
    return [_heat_row(rank, found[rank], is_lost=rank in lost, is_worst=rank == worst) for rank in kept]


def _heat_row(rank: int, points: Points, *, is_lost: bool, is_worst: bool) -> HeatRow:
    return HeatRow(rank, points, "lost" if is_lost else "worst" if is_worst else "", is_lost=is_lost)


def lost_ranks(report: Report) -> frozenset[int]:
    """The ranks whose processes died, or are gone without a goodbye."""
    gone = (report.run.live or {}).get("lost")
    found = {event.rank for event in report.events if event.kind in DEATHS}
    return frozenset(found | {pair[0] for pair in gone if len(pair) == 2} if isinstance(gone, (list, tuple)) else found)  # noqa: PLR2004


def event_lines(report: Report) -> list[tuple[str, Style]]:
    """Deaths first, then what happened beside the steps, the costliest first."""
    deaths = [(cells.clean(event.text), ALARM) for event in report.events if event.kind in DEATHS and event.text]
    return [*deaths, *((cells.clean(event_in_words(event)), PLAIN) for event in events_of(report))]


def fact_lines(report: Report) -> Iterator[tuple[str, str]]:
    """What stands below the curves: now, ranks, host, memory, speed."""
    for label, text in (
        ("now", state.doing_in_words(report)),
        ("restarts", restarts_in_words(report)),
        ("ranks", _ranks(report)),
        ("host", host_in_words(report)),
        ("memory", memory_in_words(report.step_memory)),
        ("speed", speed_in_words(report)),
    ):
        if text:
            yield label, cells.clean(text)


def host_in_words(report: Report) -> str:
    """`CPU 38 % of 8 cores · RAM 12 of 64 GiB · GPU 24 %`; why there is no GPU, once and here."""
    told = list(state.host_in_words(report, is_long=True))
    system = report.system
    if not state.is_running(report) and system.memory_bytes_max is not None:
        told.append(f"RAM {state.size_of(system.memory_bytes_max, system.memory_limit_bytes)} at most")
    if system.throttled_pct:
        told.append(f"throttled in {units.percent(system.throttled_pct / 100)} of the time")
    if not state.is_running(report) and system.device_busy_percent_mean is not None:
        told.append(f"GPU {units.percent(system.device_busy_percent_mean / 100)}")
    elif told and report.run.device.startswith("cpu"):
        told.append("no GPU in use")
    elif told and not system.devices:
        told.append("the GPU's counters cannot be read")
    return " · ".join(told)


def _ranks(report: Report) -> str:
    lines = list(ranks_in_words(report))
    if not lines:
        return ""
    lost = sorted(lost_ranks(report))
    told = [f"{report.run.world_size - len(lost)} of {report.run.world_size}"]
    if lost:
        told.append(f"rank{'s' if len(lost) > 1 else ''} {units.listed(lost)} lost")
    return " · ".join([*told, *lines[:2]])


def _ms(value: Optional[float]) -> str:
    return "" if value is None else units.significant(value)


def _short(phase: str) -> str:
    return {
        phases.H2D: "copies",
        phases.SYNC: "waiting",
        phases.IN_STEP: "rest",
        phases.BETWEEN_STEPS: "between",
    }.get(phase, cells.fit(label_of(phase), _WIDEST - 2))


def beside(left: Sequence[Row], right: Sequence[Row], *, width: int, gap: int = 2) -> list[Row]:
    """Two columns of rows; the left one is `width` cells wide."""
    height = max(len(left), len(right))
    pairs = zip([*left, *[[]] * (height - len(left))], [*right, *[[]] * (height - len(right))])
    return [[*padded(cut(one, width), width + gap), *other] if other else cut(one, width) for one, other in pairs]
