"""Defines the Comparison: what `traceml compare --json` prints and every face shows.

Times are ms, null is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Optional

SCHEMA_VERSION: Final = 1

REGRESSION: Final = "REGRESSION"
IMPROVEMENT: Final = "IMPROVEMENT"
SAME: Final = "SAME"
MIXED: Final = "MIXED"
UNDECIDED: Final = "UNDECIDED"
INCOMPARABLE: Final = "INCOMPARABLE"


@dataclass(frozen=True)
class CompareVerdict:
    """The word people act on, and the sentences that say why, where the time moved and what to do."""

    diagnosis: str  # REGRESSION | IMPROVEMENT | SAME | MIXED | UNDECIDED | INCOMPARABLE
    summary: str
    where: str  # "+12.4 ms a step [+11.1 to +13.6]: input +12.1, backward +0.2, all else +0.1"; empty: not to be said
    next: str
    basis: str  # what the interval rests on, and how much of it is the floor for drift
    phase: Optional[str]  # the phase that holds most of what moved; of `rank` alone where that is not null
    is_slower: bool  # whether a step, typical or mean, takes longer beyond doubt: what `--fail-on regression` fails on
    is_open: bool = False  # whether it may take longer by more than the margin: what `--fail-on` exits 3 on
    reasons: tuple[str, ...] = ()  # of INCOMPARABLE
    repeats: Optional[int] = None  # of UNDECIDED: about so many a side would decide; null: over 50, or repeats cannot
    rank: Optional[int] = None  # of several: whose own work in `phase` changed, which the others wait for
    alike_pct: Optional[float] = None  # every phase that matters changed by about so much; null: they did not


@dataclass(frozen=True)
class StepChange:
    """A step before and after in ms, and the change in percent with its 95 % interval, drift allowed for."""

    before_ms: float
    after_ms: float
    change_pct: float
    low_pct: Optional[float]  # null, as `high_pct`: so few runs, on so full a host, tell nothing
    high_pct: Optional[float]


@dataclass(frozen=True)
class PhaseChange:
    """A row of the waterfall: the mean of a phase in ms a step before and after, the change, its 95 % interval."""

    phase: str  # a phase, `region:<name>`, "all_else" (what is not measured in every run), or "step": all of it
    before_ms: float
    after_ms: float
    change_ms: float
    low_ms: Optional[float]  # null, as `high_ms`: as `low_pct` of a step
    high_ms: Optional[float]
    moved: bool  # beyond chance, and beyond the drift that is allowed for
    only: Optional[str] = None  # before | after: the runs of the other side do not have it, which is 0 there


@dataclass(frozen=True)
class Quantity:
    """Something beside the step, before and after; of repeats the median. No interval: it is for looking."""

    name: str  # samples_per_s | tokens_per_s | steps_per_s | peak_bytes | held_bytes | startup_s
    before: Optional[float]
    after: Optional[float]
    change_pct: Optional[float]


@dataclass(frozen=True)
class RankChange:
    """The median rank's or the worst one's own work (the period without waiting for others), in ms a step."""

    which: str  # median | worst
    before_rank: int
    after_rank: int
    before_ms: float
    after_ms: float


@dataclass(frozen=True)
class RunBrief:
    """A run that was compared: its name, how it ended, and its own verdict."""

    name: str
    folder: str
    status: str
    started_at: str
    steps: int
    steady_steps: int
    typical_ms: Optional[float]
    diagnosis: str
    severity: str
    summary: str


@dataclass(frozen=True)
class Comparison:
    """The JSON contract of a comparison."""

    schema_version: int
    verdict: CompareVerdict
    margin_pct: float  # SAME: the whole interval lies within it
    change_margin_pct: (
        float  # REGRESSION, IMPROVEMENT: the interval leaves 0 out, and the change itself is more than this
    )
    drift_pct: float  # the floor: how much of the interval, on either side, is allowed for drift between runs
    typical: Optional[StepChange]  # the median step: what the verdict rests on
    mean: Optional[StepChange]  # all steps together, the rare long ones too
    phases: tuple[PhaseChange, ...]
    quantities: tuple[Quantity, ...]
    ranks: tuple[RankChange, ...]
    changed: tuple[str, ...]  # settings that differ: "num_workers 4 -> 0"
    before: tuple[RunBrief, ...]
    after: tuple[RunBrief, ...]
    notes: tuple[str, ...] = ()
