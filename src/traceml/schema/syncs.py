"""Defines what ranks that wait for one another did: a step's cut at its last sync, and sums over what lies between.

A unit lies between the last syncs of two consecutive steps that have one; it is named by the step that ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, NamedTuple, Optional, Sequence


class SyncCut(NamedTuple):
    """What a step did up to the end of its last wait for other ranks: own work before it costs the others, too.

    `phase_ns` has one entry per name in `phases.PHASES`, none larger than the step's own.
    """

    num_syncs: int
    end_ns: int  # of the last one
    longest_ns: int
    phase_ns: tuple[int, ...]
    region_ns: tuple[tuple[int, int], ...] = ()  # as the step's


@dataclass(frozen=True)
class CollectiveWait:
    """A collective that the script called itself has waited, in this line for the first time."""

    at_ns: int  # when the wait was over
    duration_ns: int
    call: str
    where: str  # "train.py:31"


@dataclass(frozen=True)
class LedgerState:
    """How far the own-work ledger of the ranks has come, and what it could not align."""

    world_size: int
    from_step: int = 0  # the step whose last sync opened the unit that is being added up; 0: none yet
    num_synced: int = 0  # steps in which all ranks synchronised
    num_unaligned: int = 0  # steps in which the ranks did not synchronise alike
    num_without_partner: int = 0  # steps that not every rank has, or that had to be dropped while they waited for one
    unaligned: str = ""  # the first of them, in words
    num_in_ten: int = 0  # transfers since the last ten, and their sum
    ten_ns: int = 0


class Amount(NamedTuple):
    """A value over the units: its sum and its extremes."""

    total: int
    minimum: int
    maximum: int

    @classmethod
    def of(cls, value: int) -> Amount:
        """That of one unit."""
        return cls(value, value, value)


class RankSums(NamedTuple):
    """One rank over the units, in ns. `excess_ns` has a number for each of the units' phases, below 0 too."""

    own: Amount  # work between two syncs
    gain: Amount  # what all would win if this rank were like the others
    num_last: int  # units in which it came last
    sync_ns: int
    excess_ns: tuple[int, ...]  # over the median of the other ranks


class Tens(NamedTuple):
    """The means of ten consecutive transfers: how many, and the sums of them (ns) and of their squares (us squared)."""

    num: int = 0
    total_ns: int = 0
    squares_us: int = 0


class Moments(NamedTuple):
    """Sums of products over units and ranks, of what differs from the unit's mean: us of forward and backward, items.

    Items are the tokens of the unit's steps where those are known, else the samples, else nothing.
    """

    forward2: int = 0
    backward2: int = 0
    items2: int = 0
    forward_backward: int = 0
    forward_items: int = 0
    backward_items: int = 0


class UnitSums(NamedTuple):
    """Consecutive units, of the same ranks: one, or many. `by_rank` is in the order of `ranks`.

    `last_excess_ns` is, by phase, what the rank that came last had more of than the median of the others.
    """

    first_step: int
    last_step: int
    num_units: int
    num_steps: int
    length_ns: int  # of the wall, summed
    phases: tuple[str, ...]  # without sync
    ranks: tuple[int, ...]
    lost: Amount
    transfer: Amount
    by_rank: tuple[RankSums, ...]
    last_excess_ns: tuple[int, ...]
    tens: Tens = Tens()
    moments: Moments = Moments()
    num_apart: int = 0  # whose syncs ended at moments that are half a unit or more apart


def merged(parts: Iterable[UnitSums]) -> Optional[UnitSums]:
    """Units of several parts, in order, as one; None without any. Parts of other ranks than the first are left out."""
    given = list(parts)
    if not given:
        return None
    like = [part for part in given if part.ranks == given[0].ranks]
    names = tuple(dict.fromkeys([name for phases in dict.fromkeys([part.phases for part in like]) for name in phases]))
    like = [part if part.phases == names else _with_phases(part, names) for part in like]
    return UnitSums(
        min([part.first_step for part in like]),
        max([part.last_step for part in like]),
        sum([part.num_units for part in like]),
        sum([part.num_steps for part in like]),
        sum([part.length_ns for part in like]),
        names,
        like[0].ranks,
        _sum_of([part.lost for part in like]),
        _sum_of([part.transfer for part in like]),
        tuple([_rank_sum(own) for own in zip(*[part.by_rank for part in like])]),
        _columns([part.last_excess_ns for part in like]),
        Tens(*_columns([part.tens for part in like])),
        Moments(*_columns([part.moments for part in like])),
        sum([part.num_apart for part in like]),
    )


def _sum_of(amounts: Sequence[Amount]) -> Amount:
    totals, least, most = zip(*amounts)
    return Amount(sum(totals), min(least), max(most))


def _rank_sum(parts: Sequence[RankSums]) -> RankSums:
    own, gain, num_last, sync_ns, excess_ns = zip(*parts)
    return RankSums(_sum_of(own), _sum_of(gain), sum(num_last), sum(sync_ns), _columns(excess_ns))


def _columns(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows)))


def _with_phases(part: UnitSums, names: tuple[str, ...]) -> UnitSums:
    places = {name: at for at, name in enumerate(part.phases)}

    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[places[name]] if name in places else 0 for name in names)

    return part._replace(
        phases=names,
        by_rank=tuple(rank._replace(excess_ns=moved(rank.excess_ns)) for rank in part.by_rank),
        last_excess_ns=moved(part.last_excess_ns),
    )
