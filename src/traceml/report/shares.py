"""Divides the steady steps' time: percentages that add up to 100, and each phase's row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Mapping, Optional

from traceml.diagnosis.thresholds import LIMITS
from traceml.report.contract import PeriodInfo, PhaseInfo, RunAheadInfo
from traceml.schema import phases

if TYPE_CHECKING:
    from traceml.analysis.facts import RankFacts
    from traceml.schema.distribution import Distribution

_TENTHS: Final = 1000  # of a percent: 100.0 %
_NS_PER_MS: Final = 1e6
_DIGITS: Final = 5

#: The keys of `step_time`, and the phase each stands for; all others are `other_pct`.
COLUMNS: Final[dict[str, str]] = {
    "dataloader_pct": phases.INPUT,
    "h2d_pct": phases.H2D,
    "forward_pct": phases.FORWARD,
    "backward_pct": phases.BACKWARD,
    "sync_pct": phases.SYNC,
    "optimizer_pct": phases.OPTIMIZER,
    "eval_pct": phases.EVAL,
    "checkpoint_pct": phases.CHECKPOINT,
}


def ms(ns: Optional[float]) -> Optional[float]:
    """Nanoseconds as milliseconds with five significant digits; None stays None."""
    return None if ns is None else rounded(ns / _NS_PER_MS)


def rounded(value: float) -> float:
    """A number with five significant digits: small in JSON, exact enough for any face."""
    return float(f"{value:.{_DIGITS}g}")


def apportion(weights: Mapping[str, Optional[float]]) -> dict[str, Optional[float]]:
    """Percentages with one decimal that add up to 100 exactly, by the largest remainder.

    None stays None; without any weight above 0 all are None.
    """
    known = {name: weight for name, weight in weights.items() if weight is not None}
    total = sum(known.values())
    if total <= 0:
        return dict.fromkeys(weights)
    exact = {name: weight / total * _TENTHS for name, weight in known.items()}
    tenths = {name: math.floor(value) for name, value in exact.items()}
    missing = _TENTHS - sum(tenths.values())
    for name in sorted(known, key=lambda name: tenths[name] - exact[name])[:missing]:
        tenths[name] += 1
    return {name: tenths[name] / 10 if name in tenths else None for name in weights}


def phase_rows(rank: Optional[RankFacts]) -> dict[str, PhaseInfo]:
    """One row a phase, in the order of `phases.PHASES`, then the regions by name; a phase never seen has nulls."""
    if rank is None or not rank.num_steady:
        return {phase: PhaseInfo(None, None, None, None, None, None, 0) for phase in phases.PHASES}
    names = (*phases.PHASES, *sorted(name for name in rank.phases if name.startswith(phases.REGION_PREFIX)))
    percents = apportion({name: rank.phase_ns(name) for name in names})
    return {name: _row(rank, name, percents[name]) for name in names}


def _row(rank: RankFacts, name: str, pct: Optional[float]) -> PhaseInfo:
    found = rank.phases.get(name)
    if found is None:
        if rank.phase_ns(name) is None:
            return PhaseInfo(None, None, None, None, None, None, 0)
        return PhaseInfo(pct, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    return spread(found, num_steps=rank.num_steady, pct=pct)


def spread(found: Distribution, *, num_steps: int, pct: Optional[float]) -> PhaseInfo:
    """A phase's row over `num_steps` steps, zero where a step had none of it."""
    num_zeros = max(0, num_steps - found.count)
    p50, p95, p99 = (ms(found.quantile(share, num_zeros=num_zeros)) for share in (0.5, 0.95, 0.99))
    return PhaseInfo(pct, ms(found.total / num_steps), p50, p95, p99, ms(found.maximum or 0), found.count)


def columns(rows: Mapping[str, PhaseInfo]) -> dict[str, Optional[float]]:
    """The percentages of `step_time` by key; with `other_pct` they add up to 100 as those of `phases` do."""
    found = {key: rows[phase].pct for key, phase in COLUMNS.items()}
    rest = [row.pct for phase, row in rows.items() if phase not in COLUMNS.values() and row.pct is not None]
    return {**found, "other_pct": round(sum(rest), 1) if rest else None}


def period_of(rank: Optional[RankFacts]) -> PeriodInfo:
    """The steady period of a rank."""
    if rank is None:
        return PeriodInfo(None, None, None, None, None)
    period = rank.period
    p50, p95, p99 = (ms(period.quantile(share)) for share in (0.5, 0.95, 0.99))
    return PeriodInfo(ms(period.mean), p50, p95, p99, ms(period.maximum))


def run_ahead_of(rank: Optional[RankFacts]) -> Optional[RunAheadInfo]:
    """How far a rank's device is behind the host at the ends of the steady steps; None without the device's clock."""
    device = rank.device if rank is not None else None
    if device is None:
        return None
    low, high = device.run_ahead_low, device.run_ahead_high
    near = high.count - round(high.count * high.share_at_least(LIMITS.near_ns))
    return RunAheadInfo(ms(low.quantile(0.5)), ms(high.quantile(0.5)), high.count, near)
