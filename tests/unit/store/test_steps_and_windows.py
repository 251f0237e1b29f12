"""Tests that steps come back as they went in, that blocks are true, and that a window covers each step once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Optional

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import block_of, numbered, step_ms
from tests.unit.store.step_streams import covered, exact_quantile, is_seamless, period_of, phase_of, portions, stream
from traceml.schema.phases import CHECKPOINT, FORWARD, PHASES
from traceml.schema.records import HALTED, Block, RankIdentity, RankState, StepRecord
from traceml.store.reader import StoreReader, Window
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20
REGIONS = {0: "augment", 3: "log"}


def window_of(path: Path, steps: list[StepRecord], *, portion: int = 1000, coarse: bool = True) -> Window:
    """The whole run's window after the steps were appended in portions."""
    writer = StoreWriter(path)
    for some in portions(steps, portion):
        writer.append(steps=some)
    writer.close()
    return StoreReader(path).window(0, coarse=coarse)


def test_a_step_comes_back_as_it_went_in(tmp_path: Path) -> None:
    usual = step_ms(step=1, input=4, forward=9, num_samples=8, epoch_start=3)
    odd = step_ms(step=2, gc=0, forward=1, regions={0: 2, 15: 70_000}, failed_in="forward")
    steps = [usual._replace(end_ns=10**15), odd._replace(end_ns=2 * 10**15, num_tokens=2**40, user_step=0)]

    window = window_of(tmp_path / "run.db", steps)

    assert window == Window(0, 1, 2, tuple(steps))


def test_a_rank_without_steps_has_an_empty_window(tmp_path: Path) -> None:
    StoreWriter(tmp_path / "run.db").close()

    window = StoreReader(tmp_path / "run.db").window(3)

    assert window == Window(3, None, None, ())


def test_a_range_outside_the_run_is_an_empty_window(tmp_path: Path) -> None:
    window_of(tmp_path / "run.db", list(stream(10)))

    reader = StoreReader(tmp_path / "run.db")

    assert reader.window(0, first=11).pieces == reader.window(0, first=5, last=4).pieces == ()


def test_a_block_is_what_its_steps_say(tmp_path: Path) -> None:
    first = list(stream(2048))
    steps = numbered(
        [
            step_ms(
                input=i % 5,
                forward=3 + i % 7,
                regions={0: i} if i % 2 else {3: 1},
                epoch_start=4 if i == 10 else 0,
                failed_in="forward" if i in (3, 40) else None,
                num_samples=None if i % 3 else 8,
            )
            for i in range(64)
        ],
        first=2049,
    )
    writer = StoreWriter(tmp_path / "run.db")
    identity = RankIdentity(rank=0, local_rank=0, world_size=1, pid=1, process_start_ns=0)
    writer.append(steps=[*first, *steps], states=[RankState(identity, regions=REGIONS)])

    (block,) = StoreReader(tmp_path / "run.db").window(0, first=2049).pieces

    assert block == block_of(steps, regions=REGIONS)


def test_a_block_of_failed_steps_only_counts_them(tmp_path: Path) -> None:
    failed = [step._replace(failed_in="backward") for step in stream(64, first=2049)]

    (block,) = window_of(tmp_path / "run.db", [*stream(2048), *failed]).pieces[2048:]

    assert isinstance(block, Block)
    assert (block.num_steps, block.num_failed, block.period.count, block.num_samples) == (0, 64, 0, None)


def test_a_block_counts_the_steps_of_a_stopped_process_apart_from_failed_ones(tmp_path: Path) -> None:
    steps = list(stream(64, first=2049))
    steps[3:6] = [step._replace(failed_in=HALTED) for step in steps[3:6]]
    steps[7] = steps[7]._replace(failed_in="backward")

    (block,) = window_of(tmp_path / "run.db", [*stream(2048), *steps]).pieces[2048:]

    assert isinstance(block, Block)
    assert (block.num_steps, block.num_failed, block.num_halted, block.period.count) == (60, 1, 3, 60)


def test_the_first_2048_steps_are_raw_then_come_blocks_of_64_then_the_unfinished_one_raw(tmp_path: Path) -> None:
    window = window_of(tmp_path / "run.db", list(stream(2048 + 640 + 5)))

    raw, blocks, rest = window.pieces[:2048], window.pieces[2048:2058], window.pieces[2058:]
    assert all(isinstance(piece, StepRecord) for piece in (*raw, *rest))
    assert [(b.level, b.last_step - b.first_step) for b in blocks if isinstance(b, Block)] == [(1, 63)] * 10
    assert is_seamless(window.pieces, first=1, last=2693)


def test_a_fine_window_is_raw_wherever_raw_steps_are_held(tmp_path: Path) -> None:
    steps = list(stream(20_000))
    window = window_of(tmp_path / "run.db", steps, coarse=False)

    raw = [piece for piece in window.pieces if isinstance(piece, StepRecord)]

    assert raw[:2048] == steps[:2048]
    assert raw[-16_384:] == steps[-16_384:]
    assert is_seamless(window.pieces, first=1, last=20_000)


def test_unaligned_ends_of_a_coarse_window_are_raw(tmp_path: Path) -> None:
    window_of(tmp_path / "run.db", list(stream(6_000)))

    window = StoreReader(tmp_path / "run.db").window(0, first=3_000, last=3_200)

    assert (window.first, window.last) == (3_000, 3_200)
    assert covered(window.pieces)[8:12] == [(3008, 3008), (3009, 3072), (3073, 3136), (3137, 3200)]


def test_an_edge_inside_a_block_that_is_only_held_whole_widens_the_window(tmp_path: Path) -> None:
    window_of(tmp_path / "run.db", list(stream(60_000)), portion=5_000)

    window = StoreReader(tmp_path / "run.db").window(0, first=10_000, last=10_001)

    assert (window.first, window.last) == (9_217, 10_240)
    assert covered(window.pieces) == [(9_217, 10_240)]


def test_appending_known_steps_again_changes_nothing(tmp_path: Path) -> None:
    steps = list(stream(3_000))
    once = window_of(tmp_path / "once.db", steps)
    writer = StoreWriter(tmp_path / "twice.db")

    writer.append(steps=steps[:2_500])
    writer.append(steps=[*steps[2_000:], *steps[2_990:]])

    assert StoreReader(tmp_path / "twice.db").window(0) == once


def test_a_writer_that_goes_on_after_another_makes_the_same_database(tmp_path: Path) -> None:
    steps = list(stream(40_000))
    once = window_of(tmp_path / "once.db", steps, portion=777)

    for number, some in enumerate(portions(steps, 7_770)):
        writer = StoreWriter(tmp_path / "often.db")
        for few in portions(some, 777):
            writer.append(steps=few, cursors={"1-0.ring": str(number)})
        writer.close()

    assert StoreReader(tmp_path / "often.db").window(0) == once
    assert StoreWriter(tmp_path / "often.db").cursors() == {"1-0.ring": "5"}


def test_missing_steps_leave_a_gap_and_nothing_else(tmp_path: Path) -> None:
    steps = [step for step in stream(9_000) if not 2_500 < step.step <= 6_000 and step.step % 100]

    window = window_of(tmp_path / "run.db", steps)

    assert period_of(window.pieces).count == len(steps)
    assert all(
        a_last < b_first for (_, a_last), (b_first, _) in zip(covered(window.pieces), covered(window.pieces)[1:])
    )


def test_a_run_may_begin_late_and_leap_far(tmp_path: Path) -> None:
    steps = [*stream(300, first=999_990), *stream(300, first=30_000_000)]

    window = window_of(tmp_path / "run.db", steps, portion=100)

    assert (window.first, window.last) == (999_990, 30_000_299)
    assert period_of(window.pieces).count == 600


@pytest.mark.parametrize("portion", [1, 7, 64])
def test_portions_of_any_size_make_the_same_database_where_steps_are_missing(tmp_path: Path, portion: int) -> None:
    steps = [step for step in stream(6_000) if step.step <= 960 or step.step % 1_500 < 300]
    held = []
    for number, size in enumerate((portion, len(steps))):
        window_of(tmp_path / f"{number}.db", steps, portion=size)
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as db:
            tables = ("steps", "blocks", "extents", "held")
            held.append([db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables])

    assert held[0] == held[1]


def test_ranks_do_not_mix(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    by_rank = {rank: list(stream(3_000 + rank * 70, rank=rank)) for rank in (0, 1, 5)}

    writer.append(steps=[step for steps in by_rank.values() for step in steps])

    reader = StoreReader(tmp_path / "run.db")
    assert reader.ranks() == [0, 1, 5]
    assert [period_of(reader.window(r).pieces).total for r in by_rank] == [
        sum(step.period_ns for step in steps) for steps in by_rank.values()
    ]


@pytest.mark.parametrize("coarse", [True, False])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=st.tuples(st.integers(-10, 130_000), st.integers(-10, 130_000)))
def test_any_range_is_covered_seamlessly_by_what_the_window_says(
    long_run: Path, coarse: bool, edges: tuple[int, int]
) -> None:
    first, last = sorted(edges)

    window = StoreReader(long_run).window(0, first=first, last=last, coarse=coarse)

    if last < 1 or first > 120_000:
        assert window.pieces == ()
        return
    assert window.first is not None
    assert window.last is not None
    assert window.first <= max(first, 1) <= min(last, 120_000) <= window.last
    assert is_seamless(window.pieces, first=window.first, last=window.last)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "run.db"
    writer = StoreWriter(path, max_bytes=2 * MB)
    for some in portions(stream(120_000), 4_096):
        writer.append(steps=some)
    writer.close()
    return path


_PHASE_NS = st.one_of(st.none(), st.integers(0, 10**12))


@settings(max_examples=30, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(st.tuples(*[_PHASE_NS] * len(PHASES)), st.booleans(), st.integers(0, 10**10)), min_size=1, max_size=12
    ),
    num_steps=st.integers(1, 6_000),
    portion=st.integers(50, 7_000),
)
def test_sums_counts_and_extremes_of_a_run_are_exact_and_quantiles_within_a_hundredth(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[tuple[tuple[Optional[int], ...], bool, int]],
    num_steps: int,
    portion: int,
) -> None:
    steps = []
    for number in range(1, num_steps + 1):
        phase_ns, has_failed, region_ns = shapes[number * number % len(shapes)]
        period_ns = sum(ns or 0 for ns in phase_ns) + region_ns
        failed_in = "eval" if has_failed else None
        steps.append(StepRecord(0, number, number, period_ns, phase_ns, ((1, region_ns),), failed_in=failed_in))
    writer = StoreWriter(tmp_path_factory.mktemp("any") / "run.db", max_bytes=MB // 2)
    for some in portions(steps, portion):
        writer.append(steps=some)

    pieces = StoreReader(writer.path).window(0).pieces

    values = [step.period_ns for step in steps if step.failed_in is None]
    found = period_of(pieces)
    assert (found.count, found.total) == (len(values), sum(values))
    assert (found.minimum, found.maximum) == (min(values, default=None), max(values, default=None))
    for share in (0.5, 0.95, 0.99) if values else ():
        assert found.quantile(share) == pytest.approx(exact_quantile(values, share), rel=0.0101)
    forward = [ns for step in steps if not step.failed_in and (ns := step.phase_ns[PHASES.index(FORWARD)]) is not None]
    assert (phase_of(pieces, FORWARD).count, phase_of(pieces, FORWARD).total) == (len(forward), sum(forward))


def test_a_long_run_speaks_exactly_of_all_its_steps(long_run: Path) -> None:
    steps = list(stream(120_000))

    pieces = StoreReader(long_run).window(0).pieces

    saved = [ns for step in steps if (ns := step.phase_ns[PHASES.index(CHECKPOINT)]) is not None]
    periods = [step.period_ns for step in steps]
    assert {piece.level for piece in pieces if isinstance(piece, Block)} >= {1, 2}
    assert (period_of(pieces).total, period_of(pieces).maximum) == (sum(periods), max(periods))
    assert (phase_of(pieces, CHECKPOINT).count, phase_of(pieces, CHECKPOINT).total) == (len(saved), sum(saved))
    for share in (0.01, 0.5, 0.95, 0.99, 0.999):
        assert period_of(pieces).quantile(share) == pytest.approx(exact_quantile(periods, share), rel=0.0101)
