"""Keeps samples in bounded tables: when one is full, neighbouring rows of the same rank or device become one.

A merged row stands at its newest sample's time and keeps, field by field, what matters: sizes, thread counts and
temperatures their maximum; percents and watts their mean; counters that only grow, limits, names, and everything that
is counted as a share of samples (throttled, runnable, reasons) the newest sample's value, so that shares stay unbiased.
All rows a reader gets of a table stand for the same number of samples, so that their plain mean is the run's mean; only
the newest row of each rank or device may stand for fewer.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Final,
    Generic,
    Iterable,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    TypeVar,
    get_type_hints,
)

from traceml.schema.records import DeviceSample, HostSample, MemoryReading, ProcessSample
from traceml.store.columns import Kinds, check_amounts, check_columns
from traceml.store.packing import DamagedContent
from traceml.store.tables import insert_into

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
_SEPARATOR: Final = "\n"  # between throttle reasons


_COLUMN_KINDS: Final[dict[Any, Kinds]] = {
    int: frozenset({int}),
    str: frozenset({str}),
    tuple[str, ...]: frozenset({str}),
    Optional[int]: frozenset({int, type(None)}),
    Optional[bool]: frozenset({int, type(None)}),
    Optional[float]: frozenset({int, float, type(None)}),
}


class _Weighted(NamedTuple):
    """A row: how many samples it stands for, and its values in the order of the record's fields."""

    weight: int
    values: tuple[Any, ...]


_Merge = Callable[[Sequence[_Weighted], int], Any]


def _newest(rows: Sequence[_Weighted], at: int) -> Any:
    return next((row.values[at] for row in reversed(rows) if row.values[at] is not None), None)


def _largest(rows: Sequence[_Weighted], at: int) -> Any:
    return max((row.values[at] for row in rows if row.values[at] is not None), default=None)


def _mean(rows: Sequence[_Weighted], at: int) -> Optional[float]:
    known = [(row.weight, row.values[at]) for row in rows if row.values[at] is not None]
    return sum(w * v for w, v in known) / sum(w for w, _ in known) if known else None


@dataclass(frozen=True)
class SampleTable(Generic[T]):
    """A table of samples of one kind: the record's fields behind a weight, the number of samples a row stands for."""

    name: str
    kind: type[T]
    key: Optional[str]  # rows of one key are merged with each other only
    merges: Mapping[str, _Merge]  # of the fields that do not keep the newest value

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The record's fields, which are the table's columns."""
        return tuple(field.name for field in dataclasses.fields(self.kind))  # type: ignore[arg-type]  # every kind is a dataclass

    @cached_property
    def _kinds(self) -> tuple[Kinds, ...]:
        hints = get_type_hints(self.kind)
        return (frozenset({int}), *(_COLUMN_KINDS[hints[name]] for name in self.fields))

    @cached_property
    def _amounts(self) -> tuple[int, ...]:
        signed = ("at_ns", "temperature_c")
        names = ("weight", *self.fields)
        return tuple(
            at for at, kind in enumerate(self._kinds) if not kind.intersection({str}) and names[at] not in signed
        )

    @property
    def ddl(self) -> str:
        """The statement that makes the table."""
        return f"CREATE TABLE {self.name} (id INTEGER PRIMARY KEY, weight, {', '.join(self.fields)})"

    def insert(self, db: sqlite3.Connection, samples: Iterable[T]) -> int:
        """Puts samples in; the number of rows that came."""
        names = self.fields
        rows = [(None, 1, *(_to_column(getattr(sample, name)) for name in names)) for sample in samples]
        db.executemany(insert_into(self.name, len(names) + 2), rows)
        return len(rows)

    def count(self, db: sqlite3.Connection) -> int:
        """The number of rows."""
        return int(db.execute(f"SELECT count(*) FROM {self.name}").fetchone()[0])  # noqa: S608  # a name of ours

    def thin(self, db: sqlite3.Connection, num_rows: int) -> int:
        """Merges neighbours until about half of `num_rows` are left; the number of rows that are."""
        rows = self._rows(db)
        wanted = 2 * sum(row.weight for row in rows) // max(num_rows, 1)
        weight = 1 << max(wanted - 1, 0).bit_length()  # a power of two, so that old groups fill new ones exactly
        merged = self._coalesce(rows, weight)
        db.execute(f"DELETE FROM {self.name}")  # noqa: S608  # a name of ours
        db.executemany(
            insert_into(self.name, len(self.fields) + 2), [(None, row.weight, *row.values) for row in merged]
        )
        return len(merged)

    def read(self, db: sqlite3.Connection) -> list[T]:
        """The samples, oldest first, all of one weight but the newest.

        Raises:
            DamagedContent: A value has the wrong type.
        """
        rows = self._rows(db)
        merged = self._coalesce(rows, max((row.weight for row in rows), default=1))
        return [self._record(row.values) for row in merged]

    def _rows(self, db: sqlite3.Connection) -> list[_Weighted]:
        found = db.execute(f"SELECT weight, {', '.join(self.fields)} FROM {self.name} ORDER BY id").fetchall()  # noqa: S608
        check_columns(found, self._kinds)
        check_amounts(found, self._amounts)
        if any(row[0] < 1 for row in found):
            raise DamagedContent("a sample of no weight")
        return [_Weighted(row[0], row[1:]) for row in found]

    def _coalesce(self, rows: list[_Weighted], weight: int) -> list[_Weighted]:
        if weight == 1:
            return rows
        at_time = self.fields.index("at_ns")
        merged: list[_Weighted] = []
        for own in self._by_key(rows):
            group: list[_Weighted] = []
            for row in own:
                if group and sum(member.weight for member in group) + row.weight > weight:
                    merged.append(self._merge(group))
                    group = []
                group.append(row)
            merged.append(self._merge(group))
        return sorted(merged, key=lambda row: row.values[at_time])

    def _by_key(self, rows: list[_Weighted]) -> list[list[_Weighted]]:
        if self.key is None:
            return [rows] if rows else []
        at = self.fields.index(self.key)
        ordered = sorted(rows, key=lambda row: row.values[at])
        return [list(own) for _, own in groupby(ordered, key=lambda row: row.values[at])]

    def _merge(self, rows: Sequence[_Weighted]) -> _Weighted:
        if len(rows) == 1:
            return rows[0]
        values = tuple(self.merges.get(name, _newest)(rows, at) for at, name in enumerate(self.fields))
        return _Weighted(sum(row.weight for row in rows), values)

    def _record(self, values: tuple[Any, ...]) -> T:
        if self.kind is HostSample:
            at = self.fields.index("throttled")
            values = (*values[:at], None if values[at] is None else bool(values[at]), *values[at + 1 :])
        elif self.kind is DeviceSample:
            values = (*values[:-1], tuple(values[-1].split(_SEPARATOR)) if values[-1] else ())
        return self.kind(*values)


def _to_column(value: Any) -> Any:
    return _SEPARATOR.join(value) if isinstance(value, tuple) else value


MEMORY: Final = SampleTable(
    "memory",
    MemoryReading,
    key="rank",
    merges={"allocated_bytes": _largest, "reserved_bytes": _largest, "peak_bytes": _largest},
)
PROCESSES: Final = SampleTable(
    "processes",
    ProcessSample,
    key="rank",
    merges={"rss_bytes": _largest, "num_threads": _largest, "cpu_percent": _mean},
)
HOST: Final = SampleTable("host", HostSample, key=None, merges={"memory_bytes": _largest, "cpu_percent": _mean})
DEVICES: Final = SampleTable(
    "devices",
    DeviceSample,
    key="uuid",
    merges={
        "memory_bytes": _largest,
        "temperature_c": _largest,
        "busy_percent": _mean,
        "power_w": _mean,
    },
)
SAMPLE_TABLES: Final[tuple[SampleTable[Any], ...]] = (MEMORY, PROCESSES, HOST, DEVICES)
