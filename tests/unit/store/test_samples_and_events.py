"""Tests that samples are thinned evenly, keeping what matters, and that the newest and longest events survive."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from traceml.schema.records import DeviceSample, Event, HostSample, MemoryReading, ProcessSample
from traceml.store.reader import StoreReader
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

KB = 1 << 10
SMALL = 512 * KB  # room for 128 rows of each kind


def test_few_samples_come_back_as_they_went_in(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    memory = [MemoryReading(0, 5, 1, "cuda", 10), MemoryReading(1, 6, 2, "rss", 11, 12, 13, 14)]
    processes = [ProcessSample(0, 5), ProcessSample(1, 6, 10, 99.5, 3, 0, 2**40, 2**41)]
    host = [HostSample(5), HostSample(6, 2.5, 100.0, 4.0, throttled=True, memory_bytes=7, memory_limit_bytes=8)]
    devices = [
        DeviceSample(5, "GPU-1"),
        DeviceSample(6, "GPU-2", "H200", 7.0, 8, 9, 60.0, 700.0, ("thermal", "power cap")),
    ]

    writer.append(memory=memory, processes=processes, host=host, devices=devices)

    reader = StoreReader(tmp_path / "run.db")
    assert (reader.memory(), reader.processes(), reader.host(), reader.devices()) == (memory, processes, host, devices)


def test_values_that_are_equal_but_of_another_type_stay_what_they_are(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    host = [HostSample(0, 0.0, 1.0, throttled=False), HostSample(1, 1.0, 0.0, throttled=True)]

    writer.append(memory=[MemoryReading(0, 1, 0, "rss", 0, 1)], host=host, processes=[ProcessSample(1, 0, 1, 0.0, 1)])

    reader = StoreReader(tmp_path / "run.db")
    assert repr(reader.host()) == repr(host)
    assert repr(reader.memory()) == repr([MemoryReading(0, 1, 0, "rss", 0, 1)])
    assert repr(reader.processes()) == repr([ProcessSample(1, 0, 1, 0.0, 1)])


def test_many_process_samples_are_thinned_for_each_rank_alone(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db", max_bytes=SMALL)

    for at in range(0, 3_000, 100):
        writer.append(
            processes=[
                ProcessSample(
                    rank, moment, rss_bytes=1_000 * rank + moment % 7, cpu_percent=50.0 + moment % 3, read_bytes=moment
                )
                for moment in range(at, at + 100)
                for rank in (1, 2)
            ]
        )

    found = StoreReader(tmp_path / "run.db").processes()
    assert 32 <= len(found) <= 128
    assert [sample.at_ns for sample in found] == sorted(sample.at_ns for sample in found)
    for rank in (1, 2):
        own = [sample for sample in found if sample.rank == rank]
        assert {sample.rss_bytes for sample in own[:-1]} == {1_000 * rank + 6}
        assert all(sample.read_bytes == sample.at_ns for sample in own)
        assert (own[-1].at_ns, own[-1].read_bytes) == (2_999, 2_999)
        means = [sample.cpu_percent for sample in own[:-1] if sample.cpu_percent is not None]
        assert sum(means) / len(means) == pytest.approx(51, abs=0.1)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_database_from_before_the_wait_for_a_core_still_opens(tmp_path: Path, is_written: bool) -> None:
    old, new = ProcessSample(0, 5, 10, 99.5, 3, 1, 2), ProcessSample(0, 9, 10, 99.5, 3, 1, 2, 4)
    path = tmp_path / "run.db"
    writer = StoreWriter(path)
    writer.append(processes=[old])
    writer.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE processes DROP COLUMN run_delay_ns")
        db.execute("PRAGMA user_version=3")
        db.commit()

    if is_written:
        StoreWriter(path).append(processes=[new])

    assert StoreReader(path).processes() == ([old, new] if is_written else [old])


def test_thinned_waits_for_a_core_stay_with_their_time(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db", max_bytes=SMALL)

    for at in range(0, 1_000, 100):
        writer.append(processes=[ProcessSample(0, moment, run_delay_ns=3 * moment) for moment in range(at, at + 100)])

    found = StoreReader(tmp_path / "run.db").processes()
    assert len(found) <= 128
    assert all(sample.run_delay_ns == 3 * sample.at_ns for sample in found)


def test_thinned_samples_all_stand_for_equally_many(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db", max_bytes=SMALL)

    for at in range(0, 5_000, 50):
        writer.append(
            host=[HostSample(moment, cpu_percent=100.0 if moment >= 4_000 else 0.0) for moment in range(at, at + 50)]
        )

    shares = [
        sample.cpu_percent for sample in StoreReader(tmp_path / "run.db").host() if sample.cpu_percent is not None
    ]
    assert sum(shares) / len(shares) == pytest.approx(20, abs=2.5)  # the newest of 40 rows stands for fewer


def test_thinning_keeps_the_share_of_throttled_samples_and_the_memory_peak(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db", max_bytes=SMALL)

    for at in range(0, 4_000, 100):
        writer.append(
            host=[
                HostSample(moment, throttled=moment * 7919 % 10 < 3, memory_bytes=10**9 if moment == 1234 else moment)
                for moment in range(at, at + 100)
            ]
        )

    found = StoreReader(tmp_path / "run.db").host()
    assert max(sample.memory_bytes or 0 for sample in found) == 10**9
    assert sum(bool(sample.throttled) for sample in found) / len(found) == pytest.approx(0.3, abs=0.15)
    assert {type(sample.throttled) for sample in found} == {bool}


def test_a_value_that_was_never_known_stays_unknown_when_thinned(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db", max_bytes=SMALL)

    writer.append(devices=[DeviceSample(at, "GPU-1", "A100", memory_bytes=at) for at in range(1_000)])

    found = StoreReader(tmp_path / "run.db").devices()
    assert len(found) <= 128
    assert {(sample.name, sample.busy_percent, sample.power_w, sample.throttle_reasons) for sample in found} == {
        ("A100", None, None, ())
    }


def test_a_restarted_writer_goes_on_thinning(tmp_path: Path) -> None:
    for at in range(0, 2_000, 100):
        writer = StoreWriter(tmp_path / "run.db", max_bytes=SMALL)
        writer.append(memory=[MemoryReading(0, m, m, "rss", 5_000 - m) for m in range(at, at + 100)])
        writer.close()

    found = StoreReader(tmp_path / "run.db").memory()
    assert len(found) <= 128
    assert (max(reading.allocated_bytes for reading in found), found[-1].step) == (5_000, 1_999)


def test_of_too_many_events_the_newest_and_the_longest_stay_and_the_others_are_told(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db", max_bytes=SMALL)
    long_ones = {100, 777, 1_500}

    for at in range(0, 2_000, 20):
        writer.append(
            events=[
                Event("spike", 0, step, step, duration_ns=10**10 if step in long_ones else step % 9)
                for step in range(at, at + 20)
            ]
        )

    reader = StoreReader(tmp_path / "run.db")
    kept = [event.step for event in reader.events()]
    assert len(kept) <= 128
    assert long_ones < set(kept)
    assert kept[-50:] == list(range(1_950, 2_000))
    assert reader.notes()["events-dropped"].startswith(f"{2_000 - len(kept):,} older, shorter events were dropped")


def test_an_event_comes_back_as_it_went_in_and_an_endless_text_is_cut(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    event = Event("checkpoint", 3, 17, 10**15, 5 * 10**9, 2, "épochs/模型.pt")

    writer.append(events=[event, replace(event, text="x" * 999)])

    first, second = StoreReader(tmp_path / "run.db").events()
    assert first == event
    assert len(second.text) == 200
    assert second.text.endswith("…")


def test_a_stall_that_grows_is_one_event_as_it_was_last(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    first = Event("wait for a rank", 2, 41, 1_000, 5_000, text="rank 2 in checkpoint; rank 0 waits")
    grown = replace(first, kind="hang", duration_ns=60_000)
    other = Event("hang", 2, 90, 9_000, 7_000)
    for event in (first, replace(first, duration_ns=15_000), grown, other, replace(other, kind="slow step")):
        writer.append(events=[event])

    assert StoreReader(tmp_path / "run.db").events() == [grown, other, replace(other, kind="slow step")]
