"""Prices a unit: what was lost to waiting, what is communication itself, and what each rank's likeness would win."""

from __future__ import annotations

from typing import Final, Mapping, NamedTuple, Sequence

from traceml.schema.phases import BACKWARD, FORWARD, PHASE_INDEX, PHASES
from traceml.schema.syncs import Amount, Moments, RankSums, UnitSums

_FORWARD: Final = PHASE_INDEX[FORWARD]
_BACKWARD: Final = PHASE_INDEX[BACKWARD]
_PAIR: Final = 2
NOTHING: Final = Amount(0, 0, 0)


class Work(NamedTuple):
    """What a rank did in a unit: `phase_ns` by the order of `phases.PHASES`, sync being 0; its regions by name."""

    phase_ns: Sequence[int]
    region_ns: Mapping[str, int]
    sync_ns: int  # in the step that ends the unit
    end_ns: int
    length_ns: int
    num_items: int = 0

    @property
    def own_ns(self) -> int:
        """All of it."""
        return sum(self.phase_ns) + sum(self.region_ns.values())


def priced(works: Sequence[Work], *, ranks: tuple[int, ...], step: int, num_steps: int) -> UnitSums:
    """The values of one unit. About 30 us for 8 ranks.

    Lost is what the last rank did more than the median one (of two ranks: than the other). A rank's gain is what all
    would win if it were at the median of the others, or at the largest of them where that is more: a replay.

    Args:
        works: What each rank did, in the order of `ranks`; at least two.
        ranks: Ascending.
        step: The one whose last sync ends the unit.
        num_steps: How many steps the unit spans.
    """
    own = [work.own_ns for work in works]
    most = max(own)
    last = own.index(most)
    others = medians_of_others(own)
    second = max(own[:last] + own[last + 1 :])
    gain = Amount.of(most - max(second, others[last]))
    lost = most - min(own) if len(own) == _PAIR else most - _median(sorted(own))
    names, columns = _columns(works)
    excess = []
    for column in columns:
        typical = medians_of_others(column)
        excess.append([mine - median for mine, median in zip(column, typical)])
    transfer = min(work.sync_ns for work in works)
    length = sum(work.length_ns for work in works) // len(works)
    ends = [work.end_ns for work in works]
    return UnitSums(
        step,
        step,
        1,
        num_steps,
        length,
        names,
        ranks,
        Amount.of(lost),
        Amount.of(transfer),
        tuple(
            [
                RankSums(Amount(ns, ns, ns), gain if at == last else NOTHING, int(at == last), works[at].sync_ns, row)
                for at, (ns, row) in enumerate(zip(own, zip(*excess)))
            ]
        ),
        tuple([max(0, row[last]) for row in excess]),
        moments=_moments(works),
        num_apart=int(2 * (max(ends) - min(ends)) >= length),
    )


def medians_of_others(values: Sequence[int]) -> list[int]:
    """For each value the median of all the others; of at least two values."""
    ordered = sorted(values)
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2
    if low == high:  # an odd number of others: their median is one of two neighbours
        lower, upper = ordered[low], ordered[low + 1]
        return [upper if value <= lower else lower for value in values]
    lower, middle, upper = ordered[low], ordered[high], ordered[high + 1]
    with_small, with_middle, with_large = (middle + upper) // 2, (lower + upper) // 2, (lower + middle) // 2
    return [with_small if v <= lower else with_middle if v <= middle else with_large for v in values]


def _median(ordered: Sequence[int]) -> int:
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def _columns(works: Sequence[Work]) -> tuple[tuple[str, ...], list[Sequence[int]]]:
    """The phases that took any time in any rank, each with its times in the order of the ranks."""
    found: list[tuple[str, Sequence[int]]] = [
        (name, column) for name, column in zip(PHASES, zip(*[work.phase_ns for work in works])) if any(column)
    ]
    if any(work.region_ns for work in works):
        names = sorted({name for work in works for name in work.region_ns})
        found += [(name, [work.region_ns.get(name, 0) for work in works]) for name in names]
    if not found:
        found = [(PHASES[0], [0] * len(works))]
    return tuple([name for name, _ in found]), [column for _, column in found]


def _moments(works: Sequence[Work]) -> Moments:
    num = len(works)
    forward = [work.phase_ns[_FORWARD] // 1_000 for work in works]
    backward = [work.phase_ns[_BACKWARD] // 1_000 for work in works]
    items = [work.num_items for work in works]
    of_forward, of_backward, of_items = sum(forward), sum(backward), sum(items)

    def product(one: Sequence[int], other: Sequence[int], total: int) -> int:
        return sum([a * b for a, b in zip(one, other)]) - total // num

    return Moments(
        max(0, product(forward, forward, of_forward * of_forward)),
        max(0, product(backward, backward, of_backward * of_backward)),
        max(0, product(items, items, of_items * of_items)),
        product(forward, backward, of_forward * of_backward),
        product(forward, items, of_forward * of_items),
        product(backward, items, of_backward * of_items),
    )
