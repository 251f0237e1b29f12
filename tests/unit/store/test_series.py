"""Tests that a series has about as many points as asked, exact means, and every spike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import numbered, step_ms
from tests.unit.store.step_streams import portions, stream
from traceml.errors import UsageError
from traceml.schema.phases import CHECKPOINT, EVAL, FORWARD, PHASE_INDEX, SYNC
from traceml.schema.records import MemoryReading, ProcessSample, RankIdentity, RankState
from traceml.store.reader import SeriesPoint, StoreReader
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


@pytest.mark.parametrize(("num_steps", "num_points"), [(5, 300), (1_000, 300), (30_000, 300), (80_000, 100)])
def test_a_series_covers_all_steps_with_about_as_many_points_as_asked(
    tmp_path: Path, num_steps: int, num_points: int
) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    for some in portions(stream(num_steps), 20_000):
        writer.append(steps=some)

    points = StoreReader(tmp_path / "run.db").series("period", num_points=num_points)[0]

    periods = [step.period_ns for step in stream(num_steps)]
    assert min(num_steps, num_points) / 3 <= len(points) <= num_points + 2
    assert (points[0].first_step, points[-1].last_step) == (1, num_steps)
    assert all(before.last_step < after.first_step for before, after in zip(points, points[1:]))
    assert sum(point.count for point in points) == num_steps
    assert sum(point.mean * point.count for point in points) == pytest.approx(sum(periods), rel=1e-9)
    assert max(point.maximum for point in points) == max(periods)
    assert min(point.minimum for point in points) == min(periods)


def test_a_step_without_a_phase_counts_as_zero_in_its_series(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    for some in portions(stream(30_000), 5_000):
        writer.append(steps=some)

    points = StoreReader(tmp_path / "run.db").series(CHECKPOINT, num_points=10)[0]

    saved = [step.phase_ns[PHASE_INDEX[CHECKPOINT]] or 0 for step in stream(30_000)]
    assert sum(point.mean * point.count for point in points) == pytest.approx(sum(saved), rel=1e-9)
    assert {point.minimum for point in points} == {0}
    assert max(point.maximum for point in points) == max(saved)


def test_a_phase_that_was_never_seen_has_no_points_where_absence_is_no_zero(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(steps=numbered([step_ms(forward=3)] * 4))

    reader = StoreReader(tmp_path / "run.db")

    assert reader.series(SYNC)[0] == reader.series("region:augment")[0] == reader.series("rss")[0] == []
    assert [point.maximum for point in reader.series(EVAL)[0]] == [0] * 4


def test_a_region_is_asked_for_by_the_users_name(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    identity = RankIdentity(rank=0, local_rank=0, world_size=1, pid=1, process_start_ns=0)
    state = RankState(identity, regions={0: "log", 1: "augment"})

    writer.append(states=[state], steps=numbered([step_ms(forward=3, regions={1: i}) for i in range(3_000)]))

    reader = StoreReader(tmp_path / "run.db")
    assert [p.mean for p in reader.series("region:augment", first=5, last=6)[0]] == [4 * MS, 5 * MS]
    assert max(p.maximum for p in reader.series("region:augment", num_points=7)[0]) == 2_999 * MS


def test_failed_steps_are_not_drawn(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")

    writer.append(steps=numbered([step_ms(forward=3), step_ms(forward=900, failed_in=FORWARD), step_ms(forward=5)]))

    points = StoreReader(tmp_path / "run.db").series(FORWARD)[0]
    assert points == [SeriesPoint(1, 1, 3 * MS, 3 * MS, 3 * MS, 1), SeriesPoint(3, 3, 5 * MS, 5 * MS, 5 * MS, 1)]


def test_memory_is_drawn_at_its_steps_and_the_process_where_its_time_falls(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    steps = numbered([step_ms(forward=10)] * 100)
    writer.append(
        steps=steps,
        memory=[MemoryReading(0, 0, step, "cuda", 1_000 + step, peak_bytes=9_000) for step in (10, 20, 90)],
        processes=[ProcessSample(0, moment * MS, rss_bytes=moment) for moment in (5, 15, 985, 5_000)],
    )

    reader = StoreReader(tmp_path / "run.db")

    allocated = [(p.first_step, p.last_step, p.minimum, p.maximum) for p in reader.series("allocated", num_points=2)[0]]
    assert allocated == [(10, 20, 1_010, 1_020), (90, 90, 1_090, 1_090)]
    assert [(p.first_step, p.maximum) for p in reader.series("rss")[0]] == [(1, 5), (2, 15), (99, 985)]


def test_only_the_asked_ranks_and_steps_are_drawn(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(steps=[*stream(100), *stream(100, rank=1), *stream(50, rank=2)])

    found = StoreReader(tmp_path / "run.db").series("period", ranks=[1, 2, 7], first=41, last=60)

    assert {rank: (len(points), points[0].first_step) for rank, points in found.items() if points} == {
        1: (20, 41),
        2: (10, 41),
    }
    assert found[7] == []


def test_an_unknown_metric_is_refused_by_name(tmp_path: Path) -> None:
    StoreWriter(tmp_path / "run.db").close()

    with pytest.raises(UsageError, match="'forwrad'") as caught:
        StoreReader(tmp_path / "run.db").series("forwrad")

    assert caught.value.slug == "unknown-metric"
