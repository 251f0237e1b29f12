"""Holds the ring to its promises: nothing torn, overwritten or damaged is believed, and all of it is counted."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceml.errors import WireError
from traceml.schema.records import Fault, LoaderInfo, RegionName
from traceml.wire import edges
from traceml.wire.codec import MAX_BODY, decode_all, encode
from traceml.wire.ring import PUBLISHED, SEAL_EDGES, RingReader, RingWriter

NUM_EDGES = 1024


def writer(folder: Path, *, num_edges: int = NUM_EDGES, message_bytes: int = 4096) -> RingWriter:
    return RingWriter(
        folder / "a.ring",
        process_start_ns=5,
        anchor_ns=6,
        anchor_wall_ns=7,
        num_edges=num_edges,
        message_bytes=message_bytes,
    )


def write(ring: RingWriter, first: int, num: int, *, publish: bool = True, seal: bool = True) -> None:
    """Edges whose stamp is their own absolute number, plus one."""
    mask = ring.num_edges - 1
    for position in range(first, first + num):
        ring.codes[position & mask] = edges.FORWARD if position % 2 == 0 else edges.FORWARD + edges.CLOSE
        ring.stamps[position & mask] = position + 1.0
    if publish:
        ring.header[PUBLISHED] = first + num
    if seal:
        ring.seal(first + num)


def test_what_was_published_is_read_back(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    write(ring, 0, 600)

    batch = RingReader(ring.path).read(0)

    assert (batch.position, batch.num_lost, batch.end) == (0, 0, 600)
    assert batch.stamps.tolist() == [i + 1.0 for i in range(600)]


def test_reading_goes_on_where_it_ended_over_the_wrap(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    reader = RingReader(ring.path)
    position, seen = 0, []
    for start in range(0, 5000, 500):
        write(ring, start, 500)
        batch = reader.read(position)
        seen += batch.stamps.tolist()
        position = batch.end

    assert seen == [i + 1.0 for i in range(5000)]


def test_what_was_overwritten_is_counted_and_never_believed(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    reader = RingReader(ring.path)
    write(ring, 0, 5000)

    batch = reader.read(100)

    assert batch.num_lost == 5000 - NUM_EDGES - 100
    assert batch.stamps.tolist() == [i + 1.0 for i in range(5000 - NUM_EDGES, 5000)]


def test_a_writer_that_overtakes_the_reader_is_noticed(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    write(ring, 0, NUM_EDGES)
    write(ring, NUM_EDGES, 300, publish=False, seal=False)  # the unfinished step has wrapped already

    batch = RingReader(ring.path).read(0)

    assert batch.stamps.tolist() == [i + 1.0 for i in range(300, NUM_EDGES)]
    assert batch.num_lost == 300


@pytest.mark.parametrize("stamp", [float("nan"), float("inf"), -1.0, 1e9])
def test_edges_before_a_stamp_that_can_be_none_are_not_believed(tmp_path: Path, stamp: float) -> None:
    ring = writer(tmp_path)
    write(ring, 0, 500, seal=False)
    ring.stamps[300] = stamp

    batch = RingReader(ring.path).read(0)

    assert (batch.position, batch.num_lost, batch.end) == (301, 301, 500)


def test_edges_before_a_code_that_there_is_not_are_not_believed(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    write(ring, 0, 500, seal=False)
    ring.codes[300] = 63

    assert RingReader(ring.path).read(0).position == 301


def test_a_value_may_be_any_number_and_is_no_stamp(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    write(ring, 0, 500, seal=False)
    ring.codes[300], ring.stamps[300] = edges.SAMPLES, 1e12

    batch = RingReader(ring.path).read(0)

    assert (batch.position, batch.num_lost) == (0, 0)


def test_a_flipped_bit_in_a_sealed_block_loses_that_block(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    write(ring, 0, NUM_EDGES)
    ring.stamps[300] = 300.9999

    batch = RingReader(ring.path).read(0)

    assert (batch.position, batch.num_lost) == (2 * SEAL_EDGES, 2 * SEAL_EDGES)


def test_the_unpublished_tail_is_read_while_stamps_grow(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    write(ring, 0, 1500)
    write(ring, 1500, 7, publish=False, seal=False)

    tail = RingReader(ring.path).read_tail(1500)

    assert tail.stamps.tolist() == [1501.0 + i for i in range(7)]


def test_a_value_at_the_end_of_the_tail_waits_for_a_stamp(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    write(ring, 0, 10)
    ring.codes[10], ring.stamps[10] = edges.SERIAL, 77.0

    tail = RingReader(ring.path).read_tail(10)

    assert len(tail.codes) == 0


def test_messages_come_in_order_and_gaps_are_counted(tmp_path: Path) -> None:
    ring = writer(tmp_path)
    reader = RingReader(ring.path)
    ring.send(RegionName(0, "a"))
    first = [message.body for message in reader.messages()]
    for number in range(200):
        ring.send(LoaderInfo(number, num_workers=2, dataset="x" * 60))

    rest = list(reader.messages())

    assert first == [RegionName(0, "a")]
    assert rest[-1].body == LoaderInfo(199, num_workers=2, dataset="x" * 60)
    assert reader.num_lost_messages == 200 - len(rest)
    assert len(rest) > 10


@given(st.binary(max_size=600), st.integers(0, 100))
def test_noise_before_a_message_is_passed_over(noise: bytes, sequence: int) -> None:
    frame = encode(Fault("forward", "boom", 1, False), sequence)
    padded = noise + b"\0" * (-len(noise) % 8)

    assert [m.sequence for m in decode_all(padded + frame)][-1:] == [sequence]


@settings(deadline=None)
@given(st.lists(st.integers(1, 900), min_size=1, max_size=12))
def test_however_often_the_reader_looks_it_misses_or_counts_every_edge(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    ring = writer(tmp_path_factory.mktemp("ring"))
    reader = RingReader(ring.path)
    position = written = seen = lost = 0
    for number, size in enumerate(sizes):
        write(ring, written, size)
        written += size
        if number % 2:
            batch = reader.read(position)
            seen, lost, position = seen + len(batch.codes), lost + batch.num_lost, batch.end
    batch = reader.read(position)

    assert seen + len(batch.codes) + lost + batch.num_lost == written


@pytest.mark.parametrize(
    ("damage", "slug"),
    [
        (lambda path: path.write_bytes(b"not a ring"), "not-a-ring"),
        (lambda path: path.write_bytes(b"\0" * 9000), "not-a-ring"),
        (lambda path: path.unlink(), "not-a-ring"),
        (lambda path: os.truncate(path, 5000), "ring-damaged"),
        (lambda path: _poke(path, 8, b"\x63"), "ring-too-new"),
        (lambda path: _poke(path, 17, b"\x63"), "ring-damaged"),
    ],
)
def test_what_is_not_a_sound_ring_is_refused_by_name(tmp_path: Path, damage: object, slug: str) -> None:
    ring = writer(tmp_path)
    damage(ring.path)  # type: ignore[operator]

    with pytest.raises(WireError) as caught:
        RingReader(ring.path)

    assert caught.value.slug == slug
    assert "\n" not in str(caught.value)


def _poke(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_ring_is_private_and_never_replaces_a_file(tmp_path: Path) -> None:
    ring = writer(tmp_path)

    assert stat.S_IMODE(ring.path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        writer(tmp_path)


def test_a_message_is_bounded() -> None:
    with pytest.raises(AssertionError):
        encode(RegionName(0, "x" * MAX_BODY), 1)


@pytest.mark.process
def test_a_killed_writer_leaves_everything_it_stored(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from traceml.wire import edges
        from traceml.wire.ring import PUBLISHED, RingWriter
        ring = RingWriter(Path(sys.argv[1]), process_start_ns=1, anchor_ns=1, anchor_wall_ns=1, num_edges=1024)
        for i in range(700):
            ring.codes[i], ring.stamps[i] = edges.GC, i + 1.0
        ring.header[PUBLISHED] = 690
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "k.ring")], check=False)

    reader = RingReader(tmp_path / "k.ring")

    assert done.returncode == -9
    assert len(reader.read(0).codes) + len(reader.read_tail(690).codes) == 700
    assert not reader.is_closed


def test_a_long_unfinished_step_is_followed_to_its_end_over_many_values(tmp_path: Path) -> None:
    ring = writer(tmp_path, num_edges=1 << 13)
    write(ring, 0, 3000, publish=False, seal=False)
    for position in range(400, 1100):
        ring.codes[position], ring.stamps[position] = edges.SAMPLES, 4.0

    assert len(RingReader(ring.path).read_tail(0).codes) == 3000
