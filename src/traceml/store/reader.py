"""Reads a run's database, while it is written and afterwards: windows of steps, series, samples, states."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, Iterable, Iterator, NamedTuple, Optional, Sequence, TypeVar, Union

from traceml.schema.attempts import Attempt
from traceml.schema.records import (
    Block,
    DeviceSample,
    Event,
    HostSample,
    LiveSlot,
    MemoryReading,
    ProcessSample,
    RankState,
    RunEnd,
    Segment,
    StepRecord,
)
from traceml.schema.struct import StructError, from_plain
from traceml.schema.syncs import LedgerState, UnitSums
from traceml.store import samples
from traceml.store.columns import Kinds, check_amounts, check_columns
from traceml.store.cover import NUM_FIRST_STEPS, Extent, Stretch, stretches, widen
from traceml.store.events import read_events
from traceml.store.levels import BlockRow, block_record, step_record
from traceml.store.opening import Source
from traceml.store.packing import DamagedContent
from traceml.store.series import UNIT_METRICS, SeriesPoint, check_metric, points_of, unit_points_of
from traceml.store.tables import BLOCK_COLUMNS, SPANS, STEP_COLUMNS, TOP_LEVEL, block_key, step_key
from traceml.store.units import ALL_RANKS, read_regions, units_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Piece", "SeriesPoint", "StoreReader", "Window"]

T = TypeVar("T")
Piece = Union[StepRecord, Block]

_NUMBER: Final[Kinds] = frozenset({int})
_BYTES: Final[Kinds] = frozenset({bytes})
_MAYBE_NUMBER: Final[Kinds] = frozenset({int, type(None)})
_MAYBE_BYTES: Final[Kinds] = frozenset({bytes, type(None)})
_MAYBE_TEXT: Final[Kinds] = frozenset({str, type(None)})
_MARKED: Final = frozenset({"num_samples", "num_tokens", "user_step"})


def _kinds(columns: Sequence[str]) -> tuple[Kinds, ...]:
    known = {"regions": _MAYBE_BYTES, "failed_in": _MAYBE_TEXT, "body": _BYTES}
    known.update(device=_MAYBE_BYTES, sync=_MAYBE_BYTES)
    plain = {"key", "end_ns", "start_ns", "period_ns", "epoch_start_ns"}
    return tuple(
        known.get(name)
        or (_MAYBE_NUMBER if name in _MARKED or (name.endswith("_ns") and name not in plain) else _NUMBER)
        for name in columns
    )


_STEP_KINDS: Final = _kinds(STEP_COLUMNS)
_BLOCK_KINDS: Final = _kinds(BLOCK_COLUMNS)
_NO_AMOUNTS: Final = frozenset(
    {"key", "end_ns", "start_ns", "regions", "failed_in", "user_step", "body", "device", "sync"}
)
_STEP_AMOUNTS: Final = tuple(at for at, name in enumerate(STEP_COLUMNS) if name not in _NO_AMOUNTS)
_BLOCK_AMOUNTS: Final = tuple(at for at, name in enumerate(BLOCK_COLUMNS) if name not in _NO_AMOUNTS)
_SELECT_STEPS: Final = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE key BETWEEN ? AND ? ORDER BY key"  # noqa: S608  # our own columns
_SELECT_BLOCKS: Final = f"SELECT {', '.join(BLOCK_COLUMNS)} FROM blocks WHERE key BETWEEN ? AND ? ORDER BY key"  # noqa: S608  # our own columns


_MAX_PIECES: Final = 1 << 17  # of one level, far above every plan of store/retention.py


class Window(NamedTuple):
    """A range of one rank's steps; every stored step of it is in exactly one piece.

    `first` and `last` say what is really covered: an edge that fell into a block which is only held whole was moved to
    that block's edge. Both are None when the rank has no step in the range.
    """

    rank: int
    first: Optional[int]
    last: Optional[int]
    pieces: tuple[Piece, ...]


class StoreReader:
    """Reads a run's database; holds nothing open between two questions.

    Args:
        path: The database.

    Raises:
        RunError: `no-database`, `foreign-database`, `database-too-new`, `damaged-database`; every question raises the
            last one too when it meets a damaged part.
    """

    def __init__(self, path: Path) -> None:
        self._source = Source(path)
        self._held: Optional[sqlite3.Connection] = None

    def close(self) -> None:
        """Lets everything go; the reader is not to be used any more."""
        self._source.close()

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """All questions inside are answered of one moment; keep it short, the writer's log grows meanwhile."""
        if self._held is not None:
            yield self
            return
        with closing(self._open()) as db:
            self._held = db
            try:
                yield self
            finally:
                self._held = None

    def states(self) -> list[RankState]:
        """The newest state of each rank, by rank."""
        return self._records(RankState, "SELECT body FROM states ORDER BY rank")

    def segments(self) -> list[Segment]:
        """Startups and tails, by rank and time."""
        return self._records(Segment, "SELECT body FROM segments ORDER BY rank, start_ns")

    def live(self) -> list[LiveSlot]:
        """What each rank was doing at the last append that said so."""
        return self._records(LiveSlot, "SELECT body FROM live ORDER BY rank")

    def events(self) -> list[Event]:
        """The events that are kept, in the order they came."""
        with self._connection() as db:
            return read_events(db)

    def memory(self) -> list[MemoryReading]:
        """Memory readings, oldest first, thinned out evenly (see store/samples.py)."""
        with self._connection() as db:
            return samples.MEMORY.read(db)

    def processes(self) -> list[ProcessSample]:
        """The ranks' processes, oldest first, thinned out evenly."""
        with self._connection() as db:
            return samples.PROCESSES.read(db)

    def host(self) -> list[HostSample]:
        """The host, oldest first, thinned out evenly."""
        with self._connection() as db:
            return samples.HOST.read(db)

    def devices(self) -> list[DeviceSample]:
        """The run's devices, oldest first, thinned out evenly."""
        with self._connection() as db:
            return samples.DEVICES.read(db)

    def notes(self) -> dict[str, str]:
        """A sentence each, by a stable name; what the store itself dropped or cannot read among them."""
        with self._connection() as db:
            found = {str(name): str(text) for name, text in db.execute("SELECT name, text FROM notes")}
        if self._source.lost:
            found["log-unreadable"] = self._source.lost
        return found

    def end(self) -> Optional[RunEnd]:
        """How the run ended; None while nobody has said so."""
        ends = self._records(RunEnd, "SELECT value FROM meta WHERE name = 'end'")
        return ends[0] if ends else None

    def ranks(self) -> list[int]:
        """The ranks of which steps are stored."""
        with self._connection() as db:
            return [
                rank
                for (rank,) in _checked(
                    db.execute("SELECT rank FROM extents WHERE rank >= 0 ORDER BY rank"), (_NUMBER,)
                )
            ]

    def window(
        self, rank: int, *, first: Optional[int] = None, last: Optional[int] = None, coarse: bool = True
    ) -> Window:
        """The steps first..last of a rank, in order.

        Args:
            rank: Whose steps.
            first: The first step; None is the rank's first.
            last: The last step, inclusive; None is the rank's last.
            coarse: True: the first 2,048 steps one by one, then blocks of 64 (coarser where only those are left), steps
                one by one at unaligned ends. False: one by one wherever they are held.
        """
        with self._connection() as db:
            extent = self._extent(db, rank)
            asked = _clip(extent, first, last)
            if extent is None or asked is None:
                return Window(rank, None, None, ())
            wide_first, wide_last = widen(extent, first=asked[0], last=asked[1])
            found = stretches(
                extent,
                first=wide_first,
                last=wide_last,
                level=1 if coarse else 0,
                raw_until=min(extent.head[0], NUM_FIRST_STEPS) if coarse else 0,
            )
            regions = self._regions(db, rank)
            pieces: list[Piece] = []
            for stretch in found:
                if stretch.level == 0:
                    pieces.extend(step_record(rank, row) for row in _steps(db, rank, stretch))
                else:
                    pieces.extend(
                        block_record(rank, stretch.level, row, regions=regions) for row in _blocks(db, rank, stretch)
                    )
        return Window(rank, max(wide_first, extent.first_step), wide_last, tuple(pieces))

    def attempts(self) -> list[Attempt]:
        """The attempts before this one, oldest first: what else is asked is of the newest."""
        return self._records(Attempt, "SELECT body FROM attempts ORDER BY number")

    def ledger(self) -> Optional[LedgerState]:
        """How far the ranks' ledger has come; None where there is none."""
        found = self._records(LedgerState, "SELECT value FROM meta WHERE name = 'ledger'")
        return found[0] if found else None

    def units(
        self, *, first: Optional[int] = None, last: Optional[int] = None, coarse: bool = True
    ) -> tuple[UnitSums, ...]:
        """What the ranks did between two syncs, by the steps first..last that end the units, in order.

        Args:
            first: The first step; None is the first of all.
            last: The last step, inclusive; None is the last of all.
            coarse: True: the first 2,048 steps' units one by one, then those of 64 steps together (of more where only
                those sums are left). False: one by one wherever they are held.
        """
        with self._connection() as db:
            extent = self._extent(db, ALL_RANKS)
            asked = _clip(extent, first, last)
            if extent is None or asked is None:
                return ()
            wide_first, wide_last = widen(extent, first=asked[0], last=asked[1])
            raw_until = min(extent.head[0], NUM_FIRST_STEPS) if coarse else 0
            found = stretches(extent, first=wide_first, last=wide_last, level=1 if coarse else 0, raw_until=raw_until)
            regions = read_regions(db)
            return tuple(unit for stretch in found for unit in units_of(db, stretch, regions))

    def series(
        self,
        metric: str,
        *,
        ranks: Optional[Sequence[int]] = None,
        first: Optional[int] = None,
        last: Optional[int] = None,
        num_points: int = 300,
    ) -> dict[int, list[SeriesPoint]]:
        """A metric over the steps, at most about `num_points` a rank, from the coarsest level that suffices.

        Args:
            metric: `period`, a phase's name or `region:<name>` (ns), on the host's clock, or behind `device:` on the
                device's; `run_ahead` (ns, the upper bound); `own` (a rank's work between two syncs), `gain` (what all
                would win if it were like the others), `lost` and `transfer` (of all ranks: under rank 0; ns);
                `allocated`, `reserved`, `peak`, `rss` (bytes); `cpu` (percent of one core).
            ranks: None is all of them.
            first: The first step; None is each rank's first.
            last: The last step; None is each rank's last.
            num_points: How many points are wanted.

        Returns:
            The points of each rank, in order; none where the metric was never measured. Maxima are exact: no spike is
            lost.

        Raises:
            UsageError: `unknown-metric`.
        """
        check_metric(metric)
        with self.snapshot(), self._connection() as db:
            if metric in UNIT_METRICS:
                extent = self._extent(db, ALL_RANKS)
                asked = _clip(extent, first, last)
                if extent is None or asked is None:
                    return {}
                by_rank = unit_points_of(db, metric, extent=extent, asked=asked, num_points=num_points)
                return {rank: points for rank, points in by_rank.items() if ranks is None or rank in ranks}
            found: dict[int, list[SeriesPoint]] = {}
            for rank in self.ranks() if ranks is None else ranks:
                extent = self._extent(db, rank)
                asked = _clip(extent, first, last)
                if extent is None or asked is None:
                    found[rank] = []
                    continue
                regions = self._regions(db, rank)
                found[rank] = points_of(
                    db, metric, rank=rank, extent=extent, asked=asked, num_points=num_points, regions=regions
                )
            return found

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self._held is not None:
            with self._translated():
                yield self._held
            return
        with closing(self._open()) as db, self._translated():
            yield db

    def _open(self) -> sqlite3.Connection:
        with self._translated():
            db = self._source.connect()
            db.execute("BEGIN")
            return db

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, DamagedContent, StructError, UnicodeDecodeError, OverflowError) as error:
            raise self._source.translate(error) from None

    def _records(self, kind: type[T], statement: str) -> list[T]:
        with self._connection() as db:
            return [from_plain(kind, _json(text)) for (text,) in db.execute(statement)]

    @staticmethod
    def _extent(db: sqlite3.Connection, rank: int) -> Optional[Extent]:
        rows = _checked(db.execute("SELECT first_step, last_step FROM extents WHERE rank = ?", (rank,)), (_NUMBER,) * 2)
        if not rows:
            return None
        marks = _checked(
            db.execute("SELECT level, head, low FROM held WHERE rank = ? ORDER BY level", (rank,)), (_NUMBER,) * 3
        )
        first_step, last_step = rows[0]
        extent = Extent(first_step, last_step, tuple(head for _, head, _ in marks), tuple(low for _, _, low in marks))
        if not _is_sound(extent) or [level for level, _, _ in marks] != list(range(TOP_LEVEL)):
            raise DamagedContent(f"the extent of rank {rank}")
        return extent

    @staticmethod
    def _regions(db: sqlite3.Connection, rank: int) -> dict[int, str]:
        row = db.execute("SELECT body FROM states WHERE rank = ?", (rank,)).fetchone()
        return dict(from_plain(RankState, _json(row[0])).regions) if row else {}


def _clip(extent: Optional[Extent], first: Optional[int], last: Optional[int]) -> Optional[tuple[int, int]]:
    if extent is None:
        return None
    low = extent.first_step if first is None else max(first, extent.first_step)
    high = extent.last_step if last is None else min(last, extent.last_step)
    return (low, high) if low <= high else None


def _is_sound(extent: Extent) -> bool:
    falling = all(coarse <= fine for fine, coarse in zip(extent.low, extent.low[1:]))
    rising = all(fine <= coarse for fine, coarse in zip(extent.head, extent.head[1:]))
    # What a level holds is bounded; a damaged mark must not become a long loop.
    near = all(extent.last_step - low <= _MAX_PIECES * SPANS[level] for level, low in enumerate(extent.low))
    return falling and rising and near and 1 <= extent.first_step <= extent.last_step >= extent.low[0]


def _json(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        raise DamagedContent(str(error)) from None


def _checked(rows: Iterable[tuple[Any, ...]], kinds: Sequence[Kinds]) -> list[tuple[Any, ...]]:
    found = list(rows)
    check_columns(found, kinds)
    return found


def _steps(db: sqlite3.Connection, rank: int, stretch: Stretch) -> list[tuple[Any, ...]]:
    keys = (step_key(rank, stretch.first), step_key(rank, stretch.last))
    rows = _checked(db.execute(_SELECT_STEPS, keys), _STEP_KINDS)
    check_amounts(rows, _STEP_AMOUNTS)
    return rows


def _blocks(db: sqlite3.Connection, rank: int, stretch: Stretch) -> Iterator[BlockRow]:
    keys = (block_key(rank, stretch.level, stretch.first), block_key(rank, stretch.level, stretch.last))
    rows = _checked(db.execute(_SELECT_BLOCKS, keys), _BLOCK_KINDS)
    check_amounts(rows, _BLOCK_AMOUNTS)
    return (BlockRow(*row[1:]) for row in rows)
