"""Tests that states, segments, live slots, notes, cursors and the end come back as they went in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.step_streams import stream
from traceml.schema.records import Event, Fault, LiveSlot, LoaderInfo, RankEnd, RankIdentity, RankState, RunEnd, Segment
from traceml.store.reader import StoreReader
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path


def state(rank: int, *, last_step: int = 5) -> RankState:
    """A rank's state with something in every corner."""
    return RankState(
        RankIdentity(rank, rank, 2, 4711, 10**15, hostname="knötchen"),
        first_step=1,
        last_step=last_step,
        regions={0: "augment", 15: "プリ"},
        loaders=(LoaderInfo(1, num_workers=0), LoaderInfo(2)),
        training_loader=2,
        faults=(Fault("forward", "TypeError", 3, is_off=False),),
        watched=("input", "forward"),
        end=RankEnd(rank, "exception", "ValueError", 10**15),
    )


def test_the_newest_state_of_each_rank_is_kept(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(states=[state(1), state(0)])

    writer.append(states=[state(1, last_step=9)])

    assert StoreReader(tmp_path / "run.db").states() == [state(0), state(1, last_step=9)]


def test_a_segment_with_the_same_start_replaces_the_earlier_one(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    startup = Segment(0, "startup", 5, 10, (1, None), ((0, 3),))
    writer.append(segments=[Segment(0, "tail", 90, 1, ()), startup])

    writer.append(segments=[Segment(0, "tail", 90, 7, ())])

    assert StoreReader(tmp_path / "run.db").segments() == [startup, Segment(0, "tail", 90, 7, ())]


def test_live_slots_are_replaced_as_a_whole_and_stay_when_nothing_is_said(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    reader = StoreReader(tmp_path / "run.db")
    slots = [LiveSlot(0, 5, "input", 10, 20, alive=True), LiveSlot(1, 5, "sync", 10, 20, alive=True)]
    writer.append(live=slots)

    writer.append(steps=stream(3))
    after_silence = reader.live()
    writer.append(live=slots[:1])

    assert (after_silence, reader.live()) == (slots, slots[:1])


def test_notes_cursors_and_the_end_are_kept_by_name(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    end = RunEnd("killed", "signal SIGKILL", 137, 10**15, 1.7e9, "")
    writer.append(notes={"moved": "The disk was full."}, cursors={"1-0.ring": "{}", "2-0.ring": "{}"})

    writer.append(notes={"moved": "Moved."}, cursors={"1-0.ring": '{"at": 7}'})
    writer.put_end(RunEnd("unknown", "unknown", None, 1, 1.0))
    writer.put_end(end)

    reader = StoreReader(tmp_path / "run.db")
    assert reader.notes() == {"moved": "Moved."}
    assert writer.cursors() == {"1-0.ring": '{"at": 7}', "2-0.ring": "{}"}
    assert reader.end() == end


def test_a_file_name_with_odd_bytes_can_be_noted(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    name = os.fsdecode(b"caf\xe9.pt")

    writer.append(notes={"moved": f"Now in {name}."}, events=[Event("checkpoint", 0, 1, 2, text=name)])

    reader = StoreReader(tmp_path / "run.db")
    assert reader.notes() == {"moved": "Now in caf\\udce9.pt."}
    assert [event.text for event in reader.events()] == ["caf\\udce9.pt"]


def test_a_new_database_is_empty_in_every_answer(tmp_path: Path) -> None:
    StoreWriter(tmp_path / "run.db").close()

    reader = StoreReader(tmp_path / "run.db")

    answers = [reader.states(), reader.segments(), reader.events(), reader.memory(), reader.processes(), reader.host()]
    assert [*answers, reader.devices(), reader.live(), reader.ranks()] == [[]] * 9
    assert (reader.notes(), reader.end(), reader.series("period")) == ({}, None, {})


def test_a_reader_sees_each_append_as_soon_as_it_returns(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    reader = StoreReader(tmp_path / "run.db")

    seen = []
    for first in (1, 11, 21):
        writer.append(steps=stream(10, first=first))
        seen.append(reader.window(0).last)

    assert seen == [10, 20, 30]


def test_a_snapshot_answers_every_question_of_one_moment(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(steps=stream(10))
    reader = StoreReader(tmp_path / "run.db")

    with reader.snapshot():
        before = reader.window(0).last
        writer.append(steps=stream(10, first=11), states=[state(0)])
        inside = (reader.window(0).last, reader.states())

    assert (before, inside) == (10, (10, []))
    assert reader.window(0).last == 20


def test_nothing_of_an_append_is_stored_when_a_part_of_it_cannot_be(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "run.db")
    writer.append(steps=stream(70))

    with pytest.raises(AttributeError):
        writer.append(steps=stream(70, first=71), cursors={"1-0.ring": "x"}, states=[object()])  # type: ignore[list-item]  # our own mistake
    writer.append(steps=stream(30, first=71))

    assert StoreReader(tmp_path / "run.db").window(0).last == 100
    assert writer.cursors() == {}
