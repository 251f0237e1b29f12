"""Packs the sums over units into small byte strings, and reads them back believing nothing that does not add up."""

from __future__ import annotations

from typing import Callable, Final, Iterator, Mapping, Sequence

from traceml.schema.phases import PHASE_INDEX, PHASES, REGION_PREFIX
from traceml.schema.syncs import Amount, Moments, RankSums, Tens, UnitSums
from traceml.store.packing import DamagedContent, pack_numbers, unpack_numbers

#: Regions are numbered from here on, behind the phases.
FIRST_REGION: Final = 64
_MAX_RANKS: Final = 1 << 16
_MOST: Final = 1 << 100  # sums of squares too


def pack_unit(unit: UnitSums, number_region: Callable[[str], int]) -> bytes:
    """Packed sums. About 200 bytes for one unit of 8 ranks and 6 phases.

    Args:
        unit: Sums over any number of units.
        number_region: The number of a region's phase name.
    """
    one = unit.num_units == 1
    numbers = [unit.first_step, unit.last_step - unit.first_step, unit.num_units, unit.num_steps]
    numbers += (unit.length_ns, unit.num_apart, len(unit.phases), len(unit.ranks))
    numbers += [
        PHASE_INDEX[name] if name in PHASE_INDEX else FIRST_REGION + number_region(name) for name in unit.phases
    ]
    numbers += unit.ranks
    numbers += (*_amount(unit.lost, one), *_amount(unit.transfer, one), *unit.tens)
    numbers += map(_unsigned, unit.moments)
    numbers += unit.last_excess_ns
    for rank in unit.by_rank:
        numbers += (*_amount(rank.own, one), *_amount(rank.gain, one), rank.num_last, rank.sync_ns)
        numbers += map(_unsigned, rank.excess_ns)
    return pack_numbers(numbers)


def unpack_unit(packed: bytes, regions: Mapping[int, str]) -> UnitSums:
    """The sums that were packed.

    Raises:
        DamagedContent: They were not packed by us.
    """
    numbers = unpack_numbers(packed)
    if len(numbers) < 8 or max(numbers) > _MOST or numbers[7] > _MAX_RANKS:  # noqa: PLR2004  # the head
        raise DamagedContent("a unit that cannot be")
    first, span, num_units, num_steps, length_ns, num_apart, num_phases, num_ranks = numbers[:8]
    width = 1 if num_units == 1 else 3
    needed = 8 + num_phases + num_ranks + 2 * width + 3 + 6 + num_phases + num_ranks * (2 * width + 2 + num_phases)
    if len(numbers) != needed or not num_units <= num_steps or not num_ranks or num_apart > num_units:
        raise DamagedContent("a unit that does not add up")
    rest = iter(numbers[8:])
    names = tuple(_name(number, regions) for number in _next(rest, num_phases))
    ranks = _next(rest, num_ranks)
    lost, transfer = _read_amount(rest, num_units), _read_amount(rest, num_units)
    tens = Tens(*_next(rest, 3))
    moments = Moments(*map(_signed, _next(rest, 6)))
    last_excess_ns = _next(rest, num_phases)
    by_rank = tuple(
        RankSums(
            _read_amount(rest, num_units),
            _read_amount(rest, num_units),
            next(rest),
            next(rest),
            tuple(map(_signed, _next(rest, num_phases))),
        )
        for _ in ranks
    )
    if sum(rank.num_last for rank in by_rank) != num_units:
        raise DamagedContent("a unit in which not one rank was last")
    return UnitSums(
        first,
        first + span,
        num_units,
        num_steps,
        length_ns,
        names,
        ranks,
        lost,
        transfer,
        by_rank,
        last_excess_ns,
        tens,
        moments,
        num_apart,
    )


def _amount(amount: Amount, is_one: bool) -> Sequence[int]:  # of one unit, its value is all three
    return (amount.total,) if is_one else (amount.total, amount.minimum, amount.maximum)


def _read_amount(numbers: Iterator[int], num_units: int) -> Amount:
    total = next(numbers)
    if num_units == 1:
        return Amount.of(total)
    low, high = next(numbers), next(numbers)
    if not low * num_units <= total <= high * num_units:
        raise DamagedContent("an amount that does not add up")
    return Amount(total, low, high)


def _next(numbers: Iterator[int], how_many: int) -> tuple[int, ...]:
    return tuple([next(numbers) for _ in range(how_many)])


def _unsigned(number: int) -> int:
    return number << 1 if number >= 0 else ~(number << 1)


def _signed(number: int) -> int:
    return ~(number >> 1) if number & 1 else number >> 1


def _name(number: int, regions: Mapping[int, str]) -> str:
    if number >= FIRST_REGION:
        return regions.get(number - FIRST_REGION, f"{REGION_PREFIX}{number - FIRST_REGION}")
    if number >= len(PHASES):
        raise DamagedContent(f"no phase {number}")
    return PHASES[number]
