"""Says how likely it is that one of some equal ranks comes last so often by luck."""

from __future__ import annotations

import math
from typing import Final, Iterator, Sequence

_BLOCK: Final = 8  # units, as in the bootstrap
_MIN_BLOCKS: Final = 4
_MANY: Final = 2_000  # beyond, the bound is far below every limit or far above it


def chance_of_last(num_last: int, num_units: int, num_ranks: int, *, num_named: int = 1) -> float:
    """The chance that any of `num_ranks` equal ranks is last in at least `num_last` of `num_units` units.

    With `num_named` it is that of these ranks together, which is not yet times the ways to choose them.

    Exact (a binomial tail, times the ranks) up to 2,000 units; beyond, an upper bound of it.
    """
    p, ways = num_named / num_ranks, num_ranks if num_named == 1 else 1
    if num_last <= num_units * p:
        return 1.0
    if num_units > _MANY:
        share = num_last / num_units
        distance = share * math.log(share / p)
        if share < 1:
            distance += (1 - share) * math.log((1 - share) / (1 - p))
        return min(1.0, ways * math.exp(-num_units * distance))
    tail = math.fsum(_probability(number, num_units, p) for number in range(num_last, num_units + 1))
    return min(1.0, ways * tail)


def clumping(lasts: Sequence[tuple[int, int]]) -> float:
    """How many times wider than independent units let expect the counts of a rank's last places lie; at least 1.

    Neighbouring units are alike (another job on the core for a while): 80 of them that come in clumps are worth
    80 / clumping independent ones. Without this a healthy pair of ranks with noise that lasts named one in 10 runs.

    Args:
        lasts: (units the rank came last in, units) of consecutive chunks.
    """
    blocks = list(_blocks(lasts))
    num_last, num_units = sum(last for last, _ in blocks), sum(units for _, units in blocks)
    if len(blocks) < _MIN_BLOCKS or not 0 < num_last < num_units:
        return 1.0
    share = num_last / num_units
    spread = sum(units * (last / units - share) ** 2 for last, units in blocks) / (len(blocks) - 1)
    return max(1.0, spread / (share * (1 - share)))


def _blocks(lasts: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    num_last = num_units = 0
    for last, units in lasts:
        num_last, num_units = num_last + last, num_units + units
        if num_units >= _BLOCK:
            yield num_last, num_units
            num_last = num_units = 0


def _probability(number: int, of: int, p: float) -> float:
    ways = math.lgamma(of + 1) - math.lgamma(number + 1) - math.lgamma(of - number + 1)
    return math.exp(ways + number * math.log(p) + (of - number) * math.log1p(-p))
