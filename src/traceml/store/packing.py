"""Packs distributions and regions into small byte strings: variable-length whole numbers, no pickle."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from operator import sub
from typing import Final, Iterable, Iterator, Mapping, NamedTuple, Sequence

from traceml.schema.distribution import Distribution, bucket_of, buckets_of
from traceml.schema.phases import PHASES
from traceml.schema.records import DeviceTimes

#: What an entry of a body speaks of: the period, an epoch's start, then the phases, what is left out, then the regions.
PERIOD_ENTRY: Final = 0
EPOCH_ENTRY: Final = 1
FIRST_PHASE_ENTRY: Final = 2
HALTED_ENTRY: Final = 63  # the periods of steps that are left out: the process was stopped or traced
FIRST_REGION_ENTRY: Final = 64
#: The bounds of the run-ahead, and the same entries as above on the device's clock.
RUN_AHEAD_LOW_ENTRY: Final = 120
RUN_AHEAD_HIGH_ENTRY: Final = 121
DEVICE_ENTRY: Final = 128  # + the entry of the host's clock

_LOW_BITS: Final = 0x7F
_MORE: Final = 0x80
_MOST: Final = 1 << 62  # of a value: 146 years in ns


class DamagedContent(ValueError):  # noqa: N818  # reads aloud where it is caught
    """What stands in the database was not written by us, or not like this."""


class Totals(NamedTuple):
    """A distribution without its buckets: exact."""

    num_values: int
    total: int
    minimum: int
    maximum: int


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Whole numbers of at least 0, 7 bits a byte."""
    out: list[int] = []
    append = out.append
    for number in numbers:
        rest = number
        while rest > _LOW_BITS:
            append(rest & _LOW_BITS | _MORE)
            rest >>= 7
        append(rest)
    return bytes(out)


def unpack_numbers(packed: bytes) -> list[int]:
    """The numbers that were packed.

    Raises:
        DamagedContent: The last one is cut off.
    """
    numbers: list[int] = []
    number, shift = 0, 0
    for byte in packed:
        if byte & _MORE:
            number |= (byte & _LOW_BITS) << shift
            shift += 7
        elif shift:
            numbers.append(number | byte << shift)
            number, shift = 0, 0
        else:
            numbers.append(byte)
    if shift:
        raise DamagedContent("cut off")
    return numbers


def pack_values(values: Sequence[int]) -> bytes:
    """The distribution of some values (at least one), packed."""
    smallest, largest = min(values), max(values)
    return _pack(Totals(len(values), sum(values), smallest, largest), Counter(buckets_of(values)))


def pack_distribution(distribution: Distribution) -> bytes:
    """A distribution (of at least one value), packed."""
    assert distribution.minimum is not None
    assert distribution.maximum is not None
    totals = Totals(distribution.count, distribution.total, distribution.minimum, distribution.maximum)
    return _pack(totals, distribution.buckets)


def _pack(totals: Totals, buckets: Mapping[int, int]) -> bytes:
    # Totals and first bucket, then its times, then (distance, times) of each further one: mostly one byte each.
    ordered = sorted(buckets)
    spread = totals.maximum - totals.minimum
    head = pack_numbers((totals.num_values, totals.total, totals.minimum, spread, ordered[0] + 1))
    tail = [0] * (2 * len(ordered) - 1)
    tail[::2] = [buckets[bucket] for bucket in ordered]
    tail[1::2] = map(sub, ordered[1:], ordered)
    return head + (bytes(tail) if max(tail) <= _LOW_BITS else pack_numbers(tail))


def unpack_distribution(packed: bytes) -> Distribution:
    """The distribution that was packed.

    Raises:
        DamagedContent: It was not packed by us.
    """
    (num_values, total, minimum, spread, first), at = _unpack_head(packed, 5)
    tail: Sequence[int] = packed[at:]
    if tail and max(tail) > _LOW_BITS:
        tail = unpack_numbers(packed[at:])
    if len(tail) % 2 == 0:
        raise DamagedContent("a distribution of the wrong length")
    buckets = dict(zip(accumulate(tail[1::2], initial=first - 1), tail[::2]))
    maximum = minimum + spread
    _check_totals(num_values, total, minimum, maximum)
    is_whole = sum(buckets.values()) == num_values and all(buckets.values())
    if not is_whole or (min(buckets), max(buckets)) != (bucket_of(minimum), bucket_of(maximum)):
        raise DamagedContent("a distribution that does not add up")
    return Distribution(num_values, total, minimum, maximum, buckets)


def _check_totals(num_values: int, total: int, minimum: int, maximum: int) -> None:
    if not (num_values and maximum <= _MOST and num_values * minimum <= total <= num_values * maximum):
        raise DamagedContent("a distribution that does not add up")


def unpack_totals(packed: bytes) -> Totals:
    """A packed distribution's exact part, without reading its buckets.

    Raises:
        DamagedContent: It was not packed by us.
    """
    (num_values, total, minimum, spread), _ = _unpack_head(packed, 4)
    _check_totals(num_values, total, minimum, minimum + spread)
    return Totals(num_values, total, minimum, minimum + spread)


def _unpack_head(packed: bytes, num_numbers: int) -> tuple[list[int], int]:
    numbers = []
    number, shift = 0, 0
    for at, byte in enumerate(packed, 1):
        if byte & _MORE:
            number |= (byte & _LOW_BITS) << shift
            shift += 7
            continue
        numbers.append(number | byte << shift)
        number, shift = 0, 0
        if len(numbers) == num_numbers:
            return numbers, at
    raise DamagedContent("cut off")


def pack_body(entries: Iterable[tuple[int, bytes]]) -> bytes:
    """Packed distributions, each behind what it speaks of and its length, so that a reader can skip it."""
    return b"".join(pack_numbers((entry, len(packed))) + packed for entry, packed in entries)


def unpack_body(body: bytes) -> Iterator[tuple[int, bytes]]:
    """(entry, packed distribution) one by one.

    Raises:
        DamagedContent: It was not packed by us.
    """
    at, end = 0, len(body)
    while at < end:
        entry, at = _number_at(body, at)
        length, at = _number_at(body, at)
        if at + length > end:
            raise DamagedContent("cut off")
        yield entry, body[at : at + length]
        at += length


def _number_at(body: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while at < len(body):
        byte = body[at]
        at += 1
        number |= (byte & _LOW_BITS) << shift
        if not byte & _MORE:
            return number, at
        shift += 7
    raise DamagedContent("cut off")


def pack_regions(region_ns: tuple[tuple[int, int], ...]) -> bytes:
    """A step's regions: (number, ns) pairs."""
    return pack_numbers(number for pair in region_ns for number in pair)


def unpack_regions(packed: bytes) -> tuple[tuple[int, int], ...]:
    """The regions that were packed.

    Raises:
        DamagedContent: It was not packed by us.
    """
    numbers = unpack_numbers(packed)
    if len(numbers) % 2:
        raise DamagedContent("half a pair")
    return tuple(zip(numbers[::2], numbers[1::2]))


_NUM_HEAD: Final = 4  # numbers before the phases


def pack_device(times: DeviceTimes) -> bytes:
    """A step's times on the device's clock; about 40 bytes."""
    low, high = times.run_ahead_ns
    maybe = (low, high, *times.phase_ns)
    numbers = [times.period_ns, times.epoch_start_ns, *(0 if value is None else value + 1 for value in maybe)]
    return pack_numbers((*numbers, *(number for pair in times.region_ns for number in pair)))


def unpack_device(packed: bytes) -> DeviceTimes:
    """The device's times that were packed.

    Raises:
        DamagedContent: It was not packed by us.
    """
    numbers = unpack_numbers(packed)
    end = _NUM_HEAD + len(PHASES)
    regions = numbers[end:]
    if len(numbers) < end or len(regions) % 2 or max(numbers) > _MOST:
        raise DamagedContent("device times of the wrong length")
    low, high, *phase_ns = (None if number == 0 else number - 1 for number in numbers[2:end])
    times = DeviceTimes(numbers[0], tuple(phase_ns), tuple(zip(regions[::2], regions[1::2])), numbers[1], (low, high))
    if sum(ns or 0 for ns in phase_ns) + sum(regions[1::2]) != times.period_ns:
        raise DamagedContent("device times that do not add up")
    return times
