"""Holds the store to keeping the ledger's units for any length of run, exactly, and under the cap."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Iterator

import pytest

from tests.unit.store.long_runs import size_of
from tests.unit.store.step_streams import stream
from traceml.errors import RunError
from traceml.schema.attempts import Attempt, RankDeath
from traceml.schema.records import StepRecord
from traceml.schema.syncs import Amount, LedgerState, Moments, RankSums, SyncCut, Tens, UnitSums, merged
from traceml.store.reader import StoreReader
from traceml.store.tables import SPANS
from traceml.store.unit_packing import pack_unit, unpack_unit
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

PHASES = ("input", "forward", "backward", "optimizer", "region:augment")


def unit(step: int, *, num_ranks: int = 4, num_steps: int = 1) -> UnitSums:
    rng = random.Random(step)
    own = [rng.randrange(10_000_000, 30_000_000) for _ in range(num_ranks)]
    last = own.index(max(own))
    return UnitSums(
        step,
        step,
        1,
        num_steps,
        40_000_000 * num_steps,
        PHASES,
        tuple(range(num_ranks)),
        Amount.of(max(own) - sorted(own)[num_ranks // 2]),
        Amount.of(rng.randrange(4_000_000, 6_000_000)),
        tuple(
            RankSums(
                Amount.of(ns),
                Amount.of(1_000_000 if at == last else 0),
                int(at == last),
                5_000_000,
                tuple(rng.randrange(-2_000_000, 2_000_000) for _ in PHASES),
            )
            for at, ns in enumerate(own)
        ),
        tuple(rng.randrange(0, 2_000_000) for _ in PHASES),
        Tens(1, 5_000_000, 5_000**2) if step % 10 == 0 else Tens(),
        Moments(5, 6, 7, -8, 9, -10),
        step % 2,
    )


def units(num_units: int, *, every: int = 1, num_ranks: int = 4) -> Iterator[UnitSums]:
    return (unit(step, num_ranks=num_ranks, num_steps=every) for step in range(every, num_units * every + 1, every))


def write(path: Path, given: list[UnitSums], *, portion: int = 100, max_bytes: int = 64 << 20) -> StoreReader:
    writer = StoreWriter(path, max_bytes=max_bytes)
    for first in range(0, len(given), portion):
        writer.append(units=given[first : first + portion])
    writer.close()
    return StoreReader(path)


def test_a_unit_comes_back_as_it_was() -> None:
    numbers = {"region:augment": 3}
    names = {3: "region:augment"}
    for sums in (unit(7), merged(units(80))):
        assert sums is not None
        assert unpack_unit(pack_unit(sums, numbers.__getitem__), names) == sums


def test_units_are_read_one_by_one_and_in_blocks_and_add_up_exactly(tmp_path: Path) -> None:
    given = list(units(5_000))

    reader = write(tmp_path / "run.db", given)

    assert reader.units(coarse=False) == tuple(given)
    assert merged(reader.units()) == merged(given)
    assert len(reader.units()) < 2_048 + 5_000 // SPANS[1] + SPANS[1]


def test_units_of_other_phases_add_up_the_same_in_parts_and_at_once() -> None:
    given = [unit(step) for step in range(1, 30)]
    given[3] = without(given[3], "backward")
    given[7] = without(given[7], "input")
    given[11] = unit(11, num_ranks=3)

    whole = merged(given)

    assert whole is not None
    assert whole == merged(part for part in (merged(given[:9]), merged(given[9:])) if part is not None)
    assert whole.num_units == 28
    assert whole.by_rank[0].excess_ns[0] == sum(
        u.by_rank[0].excess_ns[0] for u in given if u not in (given[7], given[11])
    )


def without(whole: UnitSums, phase: str) -> UnitSums:
    at = whole.phases.index(phase)

    def rest(values: tuple[int, ...]) -> tuple[int, ...]:
        return values[:at] + values[at + 1 :]

    return whole._replace(
        phases=tuple(name for name in whole.phases if name != phase),
        by_rank=tuple(rank._replace(excess_ns=rest(rank.excess_ns)) for rank in whole.by_rank),
        last_excess_ns=rest(whole.last_excess_ns),
    )


def test_a_window_holds_the_units_that_end_in_it(tmp_path: Path) -> None:
    reader = write(tmp_path / "run.db", list(units(300, every=4)))

    assert [found.last_step for found in reader.units(first=401, last=412)] == [404, 408, 412]
    assert reader.units(first=402, last=403) == ()


def test_a_long_run_keeps_every_sum_under_its_cap(tmp_path: Path) -> None:
    given = list(units(30_000, num_ranks=8))
    writer = StoreWriter(tmp_path / "run.db", max_bytes=4 << 20)
    most = 0
    for first in range(0, len(given), 500):
        writer.append(
            units=given[first : first + 500],
            steps=[step for rank in range(2) for step in stream(500, rank=rank, first=first + 1)],
        )
        most = max(most, size_of(tmp_path))
    writer.close()
    reader = StoreReader(tmp_path / "run.db")

    assert most <= 4 << 20
    assert merged(reader.units()) == merged(given)


def test_known_units_are_passed_over_and_a_new_writer_goes_on(tmp_path: Path) -> None:
    given = list(units(200))
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(units=given[:101], ledger=LedgerState(4, from_step=101, num_synced=101))
    writer.close()
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(units=given[90:])
    writer.close()
    reader = StoreReader(tmp_path / "run.db")

    assert reader.units(coarse=False) == tuple(given)
    assert merged(reader.units()) == merged(given)
    assert reader.ledger() == LedgerState(4, from_step=101, num_synced=101)
    assert reader.ranks() == []


def test_a_run_without_units_has_none(tmp_path: Path) -> None:
    reader = write(tmp_path / "run.db", [])

    assert reader.units() == ()
    assert reader.ledger() is None
    assert reader.series("own") == {}


def test_own_work_is_drawn_rank_by_rank_for_a_heat_map(tmp_path: Path) -> None:
    given = list(units(3_000))
    reader = write(tmp_path / "run.db", given)

    rows = reader.series("own", num_points=40)

    assert sorted(rows) == [0, 1, 2, 3]
    assert all(len(points) <= 48 for points in rows.values())  # about 40
    whole = merged(given)
    assert whole is not None
    assert max(point.maximum for point in rows[2]) == whole.by_rank[2].own.maximum
    total = sum(point.mean * point.count for point in rows[2])
    assert total == pytest.approx(whole.by_rank[2].own.total)


def test_what_is_lost_is_drawn_once(tmp_path: Path) -> None:
    reader = write(tmp_path / "run.db", list(units(10)))

    assert [len(points) for points in reader.series("lost").values()] == [10]
    assert sorted(reader.series("transfer", ranks=[0])) == [0]


def test_a_steps_cut_comes_back_as_it_was(tmp_path: Path) -> None:
    cut = SyncCut(2, 995, 30, (1, 0, 30, 40, 35, 0, 0, 0, 0, 0, 3, 9), ((1, 4), (5, 0)))
    phase_ns = (1, None, 30, 40, 35, 20, 0, 0, None, 0, 13, 9)
    step = StepRecord(0, 1, 1_015, 165, phase_ns, ((1, 12), (5, 5)), sync=cut)
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(steps=[step, step._replace(step=2, sync=None)])
    writer.close()

    assert StoreReader(tmp_path / "run.db").window(0).pieces == (step, step._replace(step=2, sync=None))


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\xff" * 40, b"\x01" * 60, "text", 7])
def test_a_damaged_unit_is_refused_and_never_believed(tmp_path: Path, damage: object) -> None:
    write(tmp_path / "run.db", list(units(5)))
    db = sqlite3.connect(tmp_path / "run.db")
    db.execute("UPDATE units SET body = ? WHERE key = 3", (damage,))
    db.commit()
    db.close()

    with pytest.raises(RunError) as error:
        StoreReader(tmp_path / "run.db").units()
    assert error.value.slug == "damaged-database"


@pytest.mark.parametrize("is_written", [True, False])
def test_a_database_from_before_there_were_units_still_opens(tmp_path: Path, is_written: bool) -> None:
    write(tmp_path / "run.db", [])
    with closing(sqlite3.connect(tmp_path / "run.db")) as db:
        db.execute("ALTER TABLE steps DROP COLUMN sync")
        db.execute("ALTER TABLE processes DROP COLUMN run_delay_ns")
        for table in ("units", "unit_blocks", "unit_regions", "attempts"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version=2")
        db.commit()

    if is_written:
        write(tmp_path / "run.db", list(units(5)))
    reader = StoreReader(tmp_path / "run.db")

    assert len(reader.units()) == (5 if is_written else 0)
    assert reader.attempts() == []


def test_a_new_attempt_begins_with_step_1_and_keeps_nothing_of_the_steps_before(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(units=list(units(300)), steps=list(stream(300)), ledger=LedgerState(4, from_step=300))
    death = RankDeath(1, 301, "backward", 7, "killed by SIGKILL")
    writer.begin_attempt(Attempt(0, 4, 300, 1, 9, (death,)))
    writer.append(units=list(units(20)), steps=list(stream(20)))
    writer.close()
    reader = StoreReader(tmp_path / "run.db")

    assert [found.last_step for found in reader.units()] == list(range(1, 21))
    assert len(reader.window(0).pieces) == 20
    assert reader.ledger() is None
    assert reader.attempts() == [Attempt(0, 4, 300, 1, 9, (death,))]
