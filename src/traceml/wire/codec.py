"""Frames messages: length, checksum, sequence and a small JSON body; decodes them into records."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final, Iterator, Optional, Union

from traceml.schema.bill import Bill, Shed
from traceml.schema.model import ModelInfo
from traceml.schema.records import (
    Compilation,
    Fault,
    Halt,
    LoaderInfo,
    MemoryReading,
    RankEnd,
    RankIdentity,
    RegionName,
    StepFailure,
    Unrecorded,
    Watching,
)
from traceml.schema.room import OutOfMemory
from traceml.schema.struct import StructError, from_plain, to_plain
from traceml.schema.syncs import CollectiveWait

Body = Union[
    RankIdentity,
    LoaderInfo,
    ModelInfo,
    RegionName,
    Watching,
    StepFailure,
    Fault,
    MemoryReading,
    OutOfMemory,
    RankEnd,
    Compilation,
    Halt,
    Unrecorded,
    Bill,
    Shed,
    CollectiveWait,
]

_KINDS: Final[dict[str, type[Any]]] = {
    "identity": RankIdentity,
    "loader": LoaderInfo,
    "model": ModelInfo,
    "region": RegionName,
    "watching": Watching,
    "failure": StepFailure,
    "fault": Fault,
    "memory": MemoryReading,
    "oom": OutOfMemory,
    "end": RankEnd,
    "compilation": Compilation,
    "halt": Halt,
    "unrecorded": Unrecorded,
    "bill": Bill,
    "shed": Shed,
    "collective": CollectiveWait,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_HEAD: Final = struct.Struct("<IIQ")  # body length, crc32 of sequence and body, sequence
ALIGN: Final = 8
MAX_BODY: Final = 8192


@dataclass(frozen=True)
class Message:
    """A framed fact beside the edges. `sequence` counts from 1 without gaps."""

    sequence: int
    body: Body


def encode(body: Body, sequence: int) -> bytes:
    """A whole frame, padded to 8 bytes; a body over 8 KiB is an error of ours."""
    plain = json.dumps({"kind": _NAMES[type(body)], **to_plain(body)}, separators=(",", ":")).encode()
    assert len(plain) <= MAX_BODY, f"message of {len(plain)} bytes"
    crc = zlib.crc32(plain, sequence & 0xFFFFFFFF)
    frame = _HEAD.pack(len(plain), crc, sequence) + plain
    return frame + b"\0" * (-len(frame) % ALIGN)


def decode_at(data: bytes, offset: int) -> Optional[tuple[Message, int]]:
    """The message whose frame starts at `offset`, and where the next one starts; None when there is no sound frame."""
    if offset + _HEAD.size > len(data):
        return None
    length, crc, sequence = _HEAD.unpack_from(data, offset)
    start = offset + _HEAD.size
    if not 0 < length <= MAX_BODY or start + length > len(data):
        return None
    plain = data[start : start + length]
    if zlib.crc32(plain, sequence & 0xFFFFFFFF) != crc:
        return None
    try:
        found = json.loads(plain)
        body = from_plain(_KINDS[found.pop("kind")], found)
    except (ValueError, KeyError, AttributeError, RecursionError, StructError):
        return None
    end = start + length
    return Message(sequence, body), end + (-end % ALIGN)


def decode_all(data: bytes) -> Iterator[Message]:
    """Every sound message in `data`, in order; what is torn or overwritten is passed over, frame by frame."""
    offset = 0
    while offset + _HEAD.size <= len(data):
        found = decode_at(data, offset)
        if found is None:
            offset += ALIGN
            continue
        message, offset = found
        yield message
