"""Prices what the ranks lose to one another: a mean a step, with an interval that knows how the transfer drifts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Final

from traceml.analysis.bootstrap import mean_interval
from traceml.diagnosis.finding import Impact
from traceml.diagnosis.price import MAX_SPEEDUP, NS_PER_MS

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, LedgerFacts, RankFacts
    from traceml.schema.syncs import Amount, UnitSums

_US_PER_NS: Final = 1e-3
_NEARLY_ALL: Final = 0.95  # of the steady steps: the first lies before the first unit
_WIDENING: Final = 2.0  # times the drift: without it the interval held the measured gain in few cases, with it 11 of 12


@dataclass(frozen=True)
class UnitCost:
    """A value's mean a unit in ns with the 95 % interval of sampling alone, and the unit it is a part of."""

    mean_ns: float
    low_ns: float
    high_ns: float
    period_ns: float  # of the steps of a unit
    steps_a_unit: float

    @property
    def share(self) -> float:
        """Of the period, 0 to 1."""
        return self.mean_ns / self.period_ns

    @property
    def low_share(self) -> float:
        """That of the interval's lower end."""
        return self.low_ns / self.period_ns


def unit_cost(ledger: LedgerFacts, rank: RankFacts, amount_of: Callable[[UnitSums], Amount]) -> UnitCost:
    """What a value of the units costs; of a ledger with units, and the judged rank."""
    whole = ledger.whole
    assert whole is not None
    mean_ns = amount_of(whole).total / whole.num_units
    means = [amount_of(chunk).total / chunk.num_units for chunk in ledger.chunks]
    low_ns, high_ns = mean_interval(means, [chunk.num_units for chunk in ledger.chunks])
    steps_a_unit = whole.num_steps / whole.num_units
    period_ns = rank.total_ns / rank.num_steady * steps_a_unit
    if whole.num_steps < _NEARLY_ALL * rank.num_steady:
        period_ns = whole.length_ns / whole.num_units  # its other steps wait for nobody, and are shorter
    return UnitCost(mean_ns, low_ns, high_ns, period_ns, steps_a_unit)


def impact_of(cost: UnitCost, whole: UnitSums, facts: Facts) -> Impact:
    """The price a step. Both ends of the interval are widened by twice the drift of the transfer.

    Where ranks have steps without the others (uneven inputs) it is that of the steps in which they synchronised.
    """
    mean_ns, period_ns = cost.mean_ns / cost.steps_a_unit, cost.period_ns / cost.steps_a_unit
    wider_ns = _WIDENING * drift_ns(whole)
    most_steps = max((rank.num_steady for rank in facts.ranks), default=0)
    return Impact(
        ms=mean_ns / NS_PER_MS,
        pct=100 * mean_ns / period_ns,
        low_ms=max(0.0, cost.low_ns - wider_ns) / cost.steps_a_unit / NS_PER_MS,
        high_ms=(cost.high_ns + wider_ns) / cost.steps_a_unit / NS_PER_MS,
        speedup=period_ns / max(period_ns - mean_ns, period_ns / MAX_SPEEDUP),
        num_steps=whole.num_steps if whole.num_steps < _NEARLY_ALL * most_steps else None,
    )


def drift_ns(whole: UnitSums) -> float:
    """The standard deviation of the means of ten consecutive transfers, in ns; 0 with fewer than two of them."""
    tens = whole.tens
    if tens.num < 2:  # noqa: PLR2004  # no deviation of one
        return 0.0
    mean_us = tens.total_ns / tens.num * _US_PER_NS
    return math.sqrt(max(0.0, tens.squares_us / tens.num - mean_us**2) * tens.num / (tens.num - 1)) / _US_PER_NS
