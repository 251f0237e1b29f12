"""Prices a cost: its mean a step, its interval, the speed-up without it, and how severe that makes it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Final

from traceml.analysis.bootstrap import mean_interval
from traceml.diagnosis.finding import CRITICAL, INFO, SEVERITIES, WARNING, Impact
from traceml.schema.phases import INPUT

if TYPE_CHECKING:
    from traceml.analysis.facts import RankFacts
    from traceml.diagnosis.thresholds import Thresholds

NS_PER_MS: Final = 1e6
MAX_SPEEDUP: Final = 1_000.0  # a step that is nothing but the cost would be infinitely faster; JSON knows no infinity


@dataclass(frozen=True)
class Cost:
    """A mean in ns of all steady steps of a rank, and the same of each of its chunks."""

    mean_ns: float
    chunk_means_ns: tuple[float, ...]


def phase_cost(rank: RankFacts, phase: str) -> Cost:
    """What a phase costs a mean steady step of a rank that has some."""
    return Cost(rank.mean_ns(phase) or 0.0, tuple(chunk.phase_mean_ns.get(phase, 0.0) for chunk in rank.chunks))


def epoch_start_cost(rank: RankFacts) -> Cost:
    """What starting the training iterator, and its first fetch, cost a mean steady step."""
    return Cost(rank.epoch_start.total / rank.num_steady, tuple(chunk.epoch_start_mean_ns for chunk in rank.chunks))


def later_input_cost(rank: RankFacts) -> Cost:
    """What waiting for data costs a mean steady step beside the starts of epochs."""
    whole, starts = phase_cost(rank, INPUT), epoch_start_cost(rank)
    means = tuple(max(0.0, a - b) for a, b in zip(whole.chunk_means_ns, starts.chunk_means_ns))
    return Cost(max(0.0, whole.mean_ns - starts.mean_ns), means)


def price_of(cost: Cost, rank: RankFacts) -> Impact:
    """A cost in ms and percent of the period, with its interval and the speed-up without; a period is over 0 ns."""
    mean_ns, period_ns = cost.mean_ns, rank.total_ns / rank.num_steady
    low_ns, high_ns = mean_ns, mean_ns
    if rank.chunks:
        low_ns, high_ns = mean_interval(cost.chunk_means_ns, [chunk.num_steps for chunk in rank.chunks])
    return Impact(
        ms=mean_ns / NS_PER_MS,
        pct=100 * mean_ns / period_ns,
        low_ms=min(low_ns, mean_ns) / NS_PER_MS,
        high_ms=max(high_ns, mean_ns) / NS_PER_MS,
        speedup=period_ns / max(period_ns - mean_ns, period_ns / MAX_SPEEDUP),
    )


def severity_of(impact: Impact, rank: RankFacts, limits: Thresholds, *, at_most: str = CRITICAL) -> str:
    """How severe a price is: by its share of the period, and by how many steps stand behind it.

    One whose interval begins at nothing rests on a few long steps: it is a warning at most.
    """
    share = impact.pct / 100
    found = INFO
    if share >= limits.warning_share:
        found = WARNING
    if share >= limits.critical_share and rank.num_steady >= limits.critical_steps and impact.low_ms > 0:
        found = CRITICAL
    return min(found, at_most, key=SEVERITIES.index)


def rule_text(rule: Callable[..., Any]) -> str:
    """The first paragraph of a rule's docstring, on one line: the rule as the user reads it."""
    return " ".join(inspect.cleandoc(rule.__doc__ or "").split("\n\n")[0].split())
