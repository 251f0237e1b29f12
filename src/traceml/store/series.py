"""Draws a metric over the steps as minimum, mean and maximum a point, from the coarsest level that suffices."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Iterable, Iterator, Mapping, NamedTuple, Optional

from traceml.errors import UsageError
from traceml.schema.phases import ABSENT_WHEN_UNSEEN, PHASE_INDEX, PHASES, REGION_PREFIX
from traceml.store import packing
from traceml.store.cover import Extent, Stretch, stretches, widen
from traceml.store.packing import (
    DEVICE_ENTRY,
    FIRST_PHASE_ENTRY,
    FIRST_REGION_ENTRY,
    PERIOD_ENTRY,
    RUN_AHEAD_HIGH_ENTRY,
    RUN_AHEAD_LOW_ENTRY,
    DamagedContent,
)
from traceml.store.tables import SPANS, block_key, step_key, step_of
from traceml.store.units import units_of

if TYPE_CHECKING:
    import sqlite3

    from traceml.schema.records import DeviceTimes
    from traceml.schema.syncs import Amount, UnitSums

_PERIOD: Final = "period"
_RUN_AHEAD: Final = "run_ahead"
_DEVICE: Final = "device:"  # before a metric of the steps: on the device's clock
#: Entries that are known in some steps only, and are nothing, not 0, in the others.
_OWN_COUNT: Final = (RUN_AHEAD_LOW_ENTRY, RUN_AHEAD_HIGH_ENTRY)
#: Metric -> (table, column, the column that says when).
_SAMPLED: Final[dict[str, tuple[str, str, str]]] = {
    "allocated": ("memory", "allocated_bytes", "step"),
    "reserved": ("memory", "reserved_bytes", "step"),
    "peak": ("memory", "peak_bytes", "step"),
    "rss": ("processes", "rss_bytes", "at_ns"),
    "cpu": ("processes", "cpu_percent", "at_ns"),
}
#: What is known of each rank between two syncs, and of all ranks together (shown under rank 0).
UNIT_METRICS: Final = ("own", "gain", "lost", "transfer")


@dataclass(frozen=True)
class SeriesPoint:
    """A metric over consecutive steps; `count` is the number of steps (or samples) measured, failed ones left out.

    A phase counts as 0 in a step that had none of it.
    """

    first_step: int
    last_step: int
    minimum: float
    mean: float
    maximum: float
    count: int


class _Part(NamedTuple):
    """A piece of the cover: its steps, its time, and the metric's sum and extremes over `num_measured` steps."""

    first_step: int
    last_step: int
    start_ns: int
    end_ns: int
    num_measured: int
    total: float
    minimum: float
    maximum: float
    is_seen: bool  # the metric had a value somewhere in it


def check_metric(metric: str) -> None:
    """Refuses a metric nobody keeps.

    Raises:
        UsageError: `unknown-metric`.
    """
    known = (_PERIOD, *PHASES, _RUN_AHEAD, *UNIT_METRICS, *_SAMPLED)
    own = metric.removeprefix(_DEVICE)
    is_known = own in ((_PERIOD, *PHASES) if own != metric else known) or own.startswith(REGION_PREFIX)
    if not is_known:
        message = (
            f"Unknown metric '{metric}'. Known are {', '.join(known)} and {REGION_PREFIX}<name>; "
            f"{_DEVICE} before one of the steps is the device's clock."
        )
        raise UsageError(message, slug="unknown-metric")


def points_of(
    db: sqlite3.Connection,
    metric: str,
    *,
    rank: int,
    extent: Extent,
    asked: tuple[int, int],
    num_points: int,
    regions: Mapping[int, str],
) -> list[SeriesPoint]:
    """One rank's points over the asked steps, about `num_points` at most; none where nothing was ever measured.

    Raises:
        sqlite3.Error: The database cannot be read.
        DamagedContent: A block was not written by us.
    """
    width = max(1, -(-(asked[1] - asked[0] + 1) // max(num_points, 1)))
    level = max(level for level, span in enumerate(SPANS) if span <= width)
    first, last = widen(extent, first=asked[0], last=asked[1])
    cover = stretches(extent, first=first, last=last, level=level)
    if metric in _SAMPLED:
        parts = _sampled_parts(db, metric, rank=rank, steps=_parts(db, PERIOD_ENTRY, rank=rank, cover=cover))
    else:
        entry = _entry_of(metric, regions)
        parts = [] if entry is None else list(_parts(db, entry, rank=rank, cover=cover))
        if not any(part.is_seen for part in parts) and (metric in ABSENT_WHEN_UNSEEN or metric not in PHASE_INDEX):
            return []
    return _join(parts, start=asked[0], width=width)


def unit_points_of(
    db: sqlite3.Connection, metric: str, *, extent: Extent, asked: tuple[int, int], num_points: int
) -> dict[int, list[SeriesPoint]]:
    """Each rank's points of one of `UNIT_METRICS`, over the steps that end the units; `count` is that of the units.

    Raises:
        sqlite3.Error: The database cannot be read.
        DamagedContent: A unit was not written by us.
    """
    width = max(1, -(-(asked[1] - asked[0] + 1) // max(num_points, 1)))
    level = max(level for level, span in enumerate(SPANS) if span <= width)
    first, last = widen(extent, first=asked[0], last=asked[1])
    found: dict[int, list[_Part]] = {}
    for stretch in stretches(extent, first=first, last=last, level=level):
        for unit in units_of(db, stretch, {}):
            for rank, amount in _amounts(unit, metric):
                part = _Part(unit.first_step, unit.last_step, 0, 0, unit.num_units, *amount, is_seen=True)
                found.setdefault(rank, []).append(part)
    return {rank: _join(parts, start=asked[0], width=width) for rank, parts in found.items()}


def _amounts(unit: UnitSums, metric: str) -> list[tuple[int, Amount]]:
    if metric == "lost":
        return [(0, unit.lost)]
    if metric == "transfer":
        return [(0, unit.transfer)]
    return [(rank, sums.own if metric == "own" else sums.gain) for rank, sums in zip(unit.ranks, unit.by_rank)]


def _entry_of(metric: str, regions: Mapping[int, str]) -> Optional[int]:
    if metric.startswith(_DEVICE):
        entry = _entry_of(metric[len(_DEVICE) :], regions)
        return None if entry is None else DEVICE_ENTRY + entry
    if metric == _RUN_AHEAD:
        return RUN_AHEAD_HIGH_ENTRY
    if metric == _PERIOD:
        return PERIOD_ENTRY
    if metric in PHASE_INDEX:
        return FIRST_PHASE_ENTRY + PHASE_INDEX[metric]
    name = metric[len(REGION_PREFIX) :]
    return next((FIRST_REGION_ENTRY + number for number, known in regions.items() if known == name), None)


def _parts(db: sqlite3.Connection, entry: int, *, rank: int, cover: list[Stretch]) -> Iterator[_Part]:
    for stretch in cover:
        if stretch.level == 0:
            yield from _raw_parts(db, entry, rank=rank, stretch=stretch)
        else:
            yield from _block_parts(db, entry, rank=rank, stretch=stretch)


def _raw_parts(db: sqlite3.Connection, entry: int, *, rank: int, stretch: Stretch) -> Iterator[_Part]:
    column = _column_of(entry)
    statement = f"SELECT key, end_ns, period_ns, failed_in, {column} FROM steps WHERE key BETWEEN ? AND ? ORDER BY key"  # noqa: S608  # our own columns
    keys = (step_key(rank, stretch.first), step_key(rank, stretch.last))
    for key, end_ns, period_ns, failed_in, found in db.execute(statement, keys):
        is_measured = failed_in is None and (column != "device" or found is not None)
        value = found
        if column == "regions" and found:
            value = dict(packing.unpack_regions(found)).get(entry - FIRST_REGION_ENTRY)
        elif column == "device" and found:
            value = _device_value(entry, packing.unpack_device(found))
            is_measured = is_measured and (value is not None or entry >= DEVICE_ENTRY)
        if not isinstance(end_ns, int) or not isinstance(period_ns, int) or not isinstance(value, (int, type(None))):
            raise DamagedContent("a value of the wrong type")
        step, number = step_of(key), value or 0
        yield _Part(
            step,
            step,
            end_ns - period_ns,
            end_ns,
            int(is_measured),
            number,
            number,
            number,
            is_measured and value is not None,
        )


def _column_of(entry: int) -> str:
    if entry >= RUN_AHEAD_LOW_ENTRY:
        return "device"
    if entry >= FIRST_REGION_ENTRY:
        return "regions"
    return f"{PHASES[entry - FIRST_PHASE_ENTRY]}_ns" if entry >= FIRST_PHASE_ENTRY else "period_ns"


def _device_value(entry: int, times: DeviceTimes) -> Optional[int]:
    if entry < DEVICE_ENTRY:
        return times.run_ahead_ns[entry - RUN_AHEAD_LOW_ENTRY]
    own = entry - DEVICE_ENTRY
    if own == PERIOD_ENTRY:
        return times.period_ns
    if own >= FIRST_REGION_ENTRY:
        return dict(times.region_ns).get(own - FIRST_REGION_ENTRY)
    return times.phase_ns[own - FIRST_PHASE_ENTRY]


def _block_parts(db: sqlite3.Connection, entry: int, *, rank: int, stretch: Stretch) -> Iterator[_Part]:
    keys = (block_key(rank, stretch.level, stretch.first), block_key(rank, stretch.level, stretch.last))
    rows = db.execute(
        "SELECT first_step, last_step, start_ns, end_ns, num_steps, body FROM blocks"
        " WHERE key BETWEEN ? AND ? ORDER BY key",
        keys,
    )
    counted = entry if entry in _OWN_COUNT else DEVICE_ENTRY + PERIOD_ENTRY if entry >= DEVICE_ENTRY else None
    for row in rows:
        first_step, last_step, start_ns, end_ns, num_steps, body = row
        if not all(isinstance(value, int) for value in row[:-1]) or not isinstance(body, bytes):
            raise DamagedContent("a value of the wrong type")
        found = {
            held: packing.unpack_totals(packed)
            for held, packed in packing.unpack_body(body)
            if held in (entry, counted)
        }
        totals = found.get(entry)
        num_measured = num_steps
        if counted is not None:
            num_measured = found[counted].num_values if counted in found else 0
        total, minimum, maximum = (totals.total, totals.minimum, totals.maximum) if totals else (0, 0, 0)
        if totals and totals.num_values < num_measured:
            minimum = 0
        yield _Part(first_step, last_step, start_ns, end_ns, num_measured, total, minimum, maximum, totals is not None)


def _sampled_parts(db: sqlite3.Connection, metric: str, *, rank: int, steps: Iterable[_Part]) -> list[_Part]:
    """The samples, each counted into the steps that were running when it was taken; those outside are left out."""
    table, column, when = _SAMPLED[metric]
    places = list(steps)
    ends = [place.last_step if when == "step" else place.end_ns for place in places]
    found: dict[int, _Part] = {}
    statement = f"SELECT {when}, {column}, weight FROM {table} WHERE rank = ? AND {column} IS NOT NULL ORDER BY id"  # noqa: S608  # names of ours
    for moment, value, weight in db.execute(statement, (rank,)):
        if not isinstance(moment, int) or not isinstance(value, (int, float)) or not isinstance(weight, int):
            raise DamagedContent("a value of the wrong type")
        at = bisect_left(ends, moment)
        if at == len(places) or moment < (places[at].first_step if when == "step" else places[at].start_ns):
            continue
        part = places[at]._replace(
            num_measured=weight, total=value * weight, minimum=value, maximum=value, is_seen=True
        )
        found[at] = _joined(found[at], part) if at in found else part
    return [found[at] for at in sorted(found)]


def _join(parts: Iterable[_Part], *, start: int, width: int) -> list[SeriesPoint]:
    bins: dict[int, _Part] = {}
    for part in parts:
        if part.num_measured:
            at = (part.first_step - start) // width
            bins[at] = _joined(bins[at], part) if at in bins else part
    return [
        SeriesPoint(
            part.first_step,
            part.last_step,
            float(part.minimum),
            part.total / part.num_measured,
            float(part.maximum),
            part.num_measured,
        )
        for part in bins.values()
    ]


def _joined(one: _Part, other: _Part) -> _Part:
    return _Part(
        one.first_step,
        other.last_step,
        one.start_ns,
        other.end_ns,
        one.num_measured + other.num_measured,
        one.total + other.total,
        min(one.minimum, other.minimum),
        max(one.maximum, other.maximum),
        one.is_seen or other.is_seen,
    )
