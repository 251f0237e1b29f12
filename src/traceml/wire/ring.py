"""Writes and reads the ring: a file of raw edges that outlives the process that wrote it.

A header page, then stamps (8 bytes each), codes (1 byte each), seals (8 bytes a block of edges) and messages. The
writer stores an edge's code, then its stamp, and publishes an absolute count once a step; the reader believes what was
published, verifies sealed blocks by checksum, and reads on behind the count while stamps grow.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import sys
import zlib
from array import array
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Final, Iterator, Optional

from traceml.errors import WireError
from traceml.wire import codec
from traceml.wire.edges import CLOSE, FIRST_VALUE, GC, KNOWN, NEVER

MAGIC: Final = int.from_bytes(b"TRACEML\0", "little")
VERSION: Final = 1
HEADER_BYTES: Final = 4096
NUM_EDGES: Final = 1 << 19  # 4.5 MiB with codes: 50,000 steps of 10 edges, 2.6 s at 20,000 steps a second
SEAL_EDGES: Final = 256
MESSAGE_BYTES: Final = 128 * 1024
_TAIL_PIECE: Final = 512  # edges; 16 times as many, where all of them are sound
TAIL_EDGES: Final = 65_536  # how far behind the published count an unfinished step is followed

# Header words, 8 bytes each.
_MAGIC, _VERSION, _NUM_EDGES, _MESSAGE_BYTES, _PID, _START_NS, _ANCHOR_NS, _ANCHOR_WALL_NS, _CRC = range(9)
PUBLISHED: Final = 16  # edges, absolute
MESSAGES: Final = 17  # bytes, absolute
WANTED: Final = 18  # the training process asks for a fresh report: a number that grows
ANSWERED: Final = 19  # the reader's answer to that number
CLOSED: Final = 20  # 1: the writer said goodbye
STOP: Final = 21  # 1: the reader has seen the steps that were asked for


def layout_bytes(num_edges: int, message_bytes: int) -> int:
    """The size of a ring file in bytes."""
    return HEADER_BYTES + num_edges * 9 + num_edges // SEAL_EDGES * 8 + message_bytes


@dataclass(frozen=True)
class RingIdentity:
    """What a ring's header says: whose it is, and how its clock relates to the wall's."""

    pid: int
    process_start_ns: int
    anchor_ns: int
    anchor_wall_ns: int


@dataclass(frozen=True)
class EdgeBatch:
    """Consecutive edges: `stamps[i]` in seconds (or a value), `codes[i]`; the first stands at absolute `position`.

    `num_lost` edges before it were overwritten or damaged.
    """

    position: int
    stamps: array[float]
    codes: bytes
    num_lost: int

    @property
    def end(self) -> int:
        """The absolute position behind the last edge."""
        return self.position + len(self.codes)


class RingWriter:
    """The one writer of a ring. The recorder's hooks store into `stamps` and `codes` themselves.

    Args:
        path: A file that does not exist; its folder must be private to the user.
        process_start_ns: When this process started, on the edges' clock.
        anchor_ns: A moment on the edges' clock.
        anchor_wall_ns: The same moment on the wall clock.
        num_edges: A power of two.

    Raises:
        OSError: The file cannot be made or has no room.
    """

    def __init__(
        self,
        path: Path,
        *,
        process_start_ns: int,
        anchor_ns: int,
        anchor_wall_ns: int,
        num_edges: int = NUM_EDGES,
        message_bytes: int = MESSAGE_BYTES,
    ) -> None:
        assert num_edges & (num_edges - 1) == 0
        self.path, self.num_edges = path, num_edges
        size = layout_bytes(num_edges, message_bytes)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            _allocate(fd, size)
            flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if sys.platform == "linux" else 0)
            self._map = mmap.mmap(fd, size, flags=flags)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)
        view = memoryview(self._map)
        self.stamps, self.codes, self._seals, self._messages = _sections(view, num_edges, message_bytes)
        self.header: memoryview[int] = view[:HEADER_BYTES].cast("q")
        self._sequence = 0
        self._sealed = 0
        words = (MAGIC, VERSION, num_edges, message_bytes, os.getpid(), process_start_ns, anchor_ns, anchor_wall_ns)
        for place, word in enumerate(words):
            self.header[place] = word
        self.header[_CRC] = _header_crc(words)

    def seal(self, end: int) -> None:
        """Checksums every whole block of edges before absolute `end`; called between steps, a block or more apart."""
        mask, num_edges = self.num_edges - 1, self.num_edges
        self._sealed = max(self._sealed, (end - num_edges) // SEAL_EDGES * SEAL_EDGES)
        while self._sealed + SEAL_EDGES <= end:
            first = self._sealed & mask
            last = first + SEAL_EDGES
            crc = zlib.crc32(self.stamps[first:last], zlib.crc32(self.codes[first:last]))
            lap = (self._sealed // num_edges + 1) & 0x7FFFFFFF
            self._seals[first // SEAL_EDGES] = lap << 32 | crc
            self._sealed += SEAL_EDGES

    def send(self, body: codec.Body) -> None:
        """Puts a framed message beside the edges; the oldest ones are overwritten when nobody reads."""
        self._sequence += 1
        frame = codec.encode(body, self._sequence)
        size, at = len(self._messages), self.header[MESSAGES]
        if at % size + len(frame) > size:  # a frame never crosses the end
            self._messages[at % size :] = bytes(size - at % size)
            at += size - at % size
        self._messages[at % size : at % size + len(frame)] = frame
        self.header[MESSAGES] = at + len(frame)

    def close(self) -> None:
        """Says goodbye. The map stays usable, so that a hook that fires late harms nobody."""
        self.header[CLOSED] = 1


class RingReader:
    """Reads a ring from outside: live, after the end, after a crash. Never writes into it but for `answer` and `stop`.

    Raises:
        WireError: `not-a-ring`, `ring-too-new` or `ring-damaged`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            fd = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            raise WireError(f"Cannot open ring '{path}': {error.strerror}.", slug="not-a-ring") from None
        try:
            words = _check_header(os.pread(fd, HEADER_BYTES, 0), os.fstat(fd).st_size, path)
            self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
        self.num_edges, message_bytes = words[_NUM_EDGES], words[_MESSAGE_BYTES]
        self.identity = RingIdentity(words[_PID], words[_START_NS], words[_ANCHOR_NS], words[_ANCHOR_WALL_NS])
        view = memoryview(self._map)
        self._stamps, self._codes, self._seals, self._messages = _sections(view, self.num_edges, message_bytes)
        self._header = view[:HEADER_BYTES].cast("q")
        self._last_sequence = 0
        self._message_position = 0
        self.num_lost_messages = 0

    @property
    def published(self) -> int:
        """How many edges the writer has published, ever."""
        return self._header[PUBLISHED]

    @property
    def is_closed(self) -> bool:
        """Whether the writer said goodbye."""
        return self._header[CLOSED] == 1

    @property
    def wanted(self) -> Optional[int]:
        """The report request that is not answered yet, None when there is none."""
        wanted = self._header[WANTED]
        return wanted if wanted > self._header[ANSWERED] else None

    def answer(self, wanted: int) -> None:
        """Marks a request as answered: the report file is in place."""
        self._header[ANSWERED] = wanted

    def stop(self) -> None:
        """Asks the writer to close the recording at its next housekeeping."""
        self._header[STOP] = 1

    def read(self, position: int) -> EdgeBatch:
        """The published edges from absolute `position` on; overwritten and damaged ones are left out and counted."""
        end = self.published
        start = max(position, end - self.num_edges)
        stamps, codes = self._copy(start, end)
        # What the writer overtook while we copied carries newer stamps at the batch's start: cut there.
        overtaken = max(start, self._overwritten_up_to())
        first = _sound_from(stamps, codes, max(0, overtaken - start), last=_last_stamp(stamps, codes))
        first = max(first, self._damaged_up_to(start + first, end, stamps, codes, start) - start)
        return EdgeBatch(start + first, stamps[first:], codes[first:], start + first - position)

    def read_tail(self, position: int) -> EdgeBatch:
        """The edges behind `position` that were stored and not yet published: those of the unfinished step.

        Read under plausibility rules: known codes, stamps that grow. Of a dead process all of it is final; of a living
        one the newest edge may be a few microseconds old.
        """
        end = position + min(TAIL_EDGES, self.num_edges // 2)
        piece = _TAIL_PIECE
        while True:  # nearly always a few edges: not half a megabyte is copied for them
            stamps, codes = self._copy(position, min(end, position + piece))
            num_sound, goes_on = _sound_until(stamps, codes, _last_stamp(*self._copy(max(0, position - 64), position)))
            if not goes_on or position + piece >= end:
                return EdgeBatch(position, stamps[:num_sound], codes[:num_sound], 0)
            piece *= 16

    def messages(self) -> Iterator[codec.Message]:
        """The messages since the last call; gaps in their sequence are added to `num_lost_messages`."""
        size, end = len(self._messages), self._header[MESSAGES]
        start = max(self._message_position, end - size)
        data = b""
        for first, last in _spans(start, end, size):
            data += bytes(self._messages[first:last])
        self._message_position = end
        for message in codec.decode_all(data):
            if message.sequence <= self._last_sequence:
                continue
            self.num_lost_messages += message.sequence - self._last_sequence - 1
            self._last_sequence = message.sequence
            yield message

    def close(self) -> None:
        """Lets the map go."""
        for view in (self._stamps, self._codes, self._seals, self._messages, self._header):
            view.release()
        self._map.close()

    def _copy(self, start: int, end: int) -> tuple[array[float], bytes]:
        stamps, codes = array("d"), b""
        for first, last in _spans(start, end, self.num_edges):
            stamps.frombytes(self._stamps[first:last].tobytes())
            codes += bytes(self._codes[first:last])
        return stamps, codes

    def _overwritten_up_to(self) -> int:
        return self.published - self.num_edges

    def _damaged_up_to(self, start: int, end: int, stamps: array[float], codes: bytes, offset: int) -> int:
        """The end of the last sealed block in [start, end) whose checksum does not fit, else `start`."""
        bad = start
        block = -(-start // SEAL_EDGES) * SEAL_EDGES
        while block + SEAL_EDGES <= end:
            at = block - offset
            seal = self._seals[block % self.num_edges // SEAL_EDGES]
            if seal >> 32 == (block // self.num_edges + 1) & 0x7FFFFFFF:
                crc = zlib.crc32(stamps[at : at + SEAL_EDGES].tobytes(), zlib.crc32(codes[at : at + SEAL_EDGES]))
                if crc != seal & 0xFFFFFFFF:
                    bad = block + SEAL_EDGES
            block += SEAL_EDGES
        return bad


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    chunk = bytes(1 << 16)
    for start in range(0, size, len(chunk)):
        os.pwrite(fd, chunk[: size - start], start)


def _sections(
    view: memoryview, num_edges: int, message_bytes: int
) -> tuple[memoryview[float], memoryview[int], memoryview[int], memoryview[int]]:
    stamps_end = HEADER_BYTES + num_edges * 8
    codes_end = stamps_end + num_edges
    seals_end = codes_end + num_edges // SEAL_EDGES * 8
    return (
        view[HEADER_BYTES:stamps_end].cast("d"),
        view[stamps_end:codes_end],
        view[codes_end:seals_end].cast("q"),
        view[seals_end : seals_end + message_bytes],
    )


def _header_crc(words: tuple[int, ...]) -> int:
    return zlib.crc32(struct.pack(f"={len(words)}q", *words))


def _check_header(raw: bytes, size: int, path: Path) -> tuple[int, ...]:
    if len(raw) < HEADER_BYTES:
        raise WireError(f"'{path}' is not a TraceML ring: only {len(raw)} bytes.", slug="not-a-ring")
    words = struct.unpack_from("=9q", raw)
    if words[_MAGIC] != MAGIC:
        raise WireError(f"'{path}' is not a TraceML ring.", slug="not-a-ring")
    if words[_VERSION] != VERSION:
        found = words[_VERSION]
        message = f"Ring '{path}' has version {found}, this TraceML reads {VERSION}. Use the one that wrote it."
        raise WireError(message, slug="ring-too-new")
    num_edges = words[_NUM_EDGES]
    if _header_crc(words[:_CRC]) != words[_CRC] or size != layout_bytes(num_edges, words[_MESSAGE_BYTES]):
        raise WireError(f"Ring '{path}' is damaged: header and size do not fit.", slug="ring-damaged")
    return words


def _spans(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """The one or two physical spans of the absolute range [start, end)."""
    if end <= start:
        return
    first, length = start % size, end - start
    yield first, min(size, first + length)
    if first + length > size:
        yield 0, first + length - size


def _last_stamp(stamps: array[float], codes: bytes) -> float:
    for i in range(len(codes) - 1, -1, -1):
        if codes[i] < FIRST_VALUE:
            return stamps[i]
    return 0.0


def _sound_until(stamps: array[float], codes: bytes, last: float) -> tuple[int, bool]:
    """How many of the edges behind one with the stamp `last` are plausible; and whether none was found that is not."""
    older, num_sound = last, 0
    for i, (stamp, code) in enumerate(zip(stamps, codes)):
        if code not in KNOWN:
            return num_sound, False
        if code >= FIRST_VALUE:
            continue  # counts once a stamp behind it is sound
        if stamp >= last and stamp > 0:
            older, last = last, stamp
        elif not (code in (GC, GC + CLOSE) and stamp >= older > 0):
            return num_sound, False  # of the last lap, not a collection that began before its neighbour was stamped
        num_sound = i + 1
    return num_sound, True


_ALLOWED: Final = bytes({*KNOWN, NEVER})
_TIMES: Final = bytes(code < FIRST_VALUE for code in range(256))  # 1: its entry is a stamp


def _are_all_sound(stamps: array[float], codes: bytes, first: int, *, last: float) -> bool:
    """What `_sound_from` looks at edge by edge, at a tenth of its cost: nearly always there is nothing to find."""
    if codes[first:].translate(None, _ALLOWED):
        return False
    times = list(compress(stamps[first:], codes[first:].translate(_TIMES)))
    # A NaN is no less than any other number: only the sum tells of it.
    return not times or (min(times) >= 0 and max(times) <= last and not math.isnan(sum(times)))


def _sound_from(stamps: array[float], codes: bytes, first: int, *, last: float) -> int:
    """The index from which on every code is known and every stamp at most `last`: the part before is torn.

    A slot that was reserved and never filled is let through; it carries no time.
    """
    if _are_all_sound(stamps, codes, first, last=last):
        return first
    for i in range(len(codes) - 1, first - 1, -1):
        if codes[i] not in KNOWN and codes[i] != NEVER:
            return i + 1
        if codes[i] < FIRST_VALUE and not 0 <= stamps[i] <= last:
            return i + 1
    return first
