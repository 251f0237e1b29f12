"""Defines what a rule returns: a finding with its price, its evidence and one next action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Optional

CRITICAL: Final = "critical"
WARNING: Final = "warning"
INFO: Final = "info"
SEVERITIES: Final = (INFO, WARNING, CRITICAL)  # ascending


@dataclass(frozen=True)
class Impact:
    """What a finding costs a step: mean ms, percent of the period, the 95 % interval, and the speed-up without.

    `num_steps`: of so many steps; None: of all steady ones.
    """

    ms: float
    pct: float
    low_ms: float
    high_ms: float
    speedup: float
    num_steps: Optional[int] = None


@dataclass(frozen=True)
class Evidence:
    """A number that was compared: `input is 47.2 % of the period, at least 10 % fires`."""

    name: str
    value: float
    limit: Optional[float]
    unit: str  # "%", "ms", "steps", "bytes"


@dataclass(frozen=True)
class Finding:
    """One rule's answer.

    `summary` is the sentence, `why` its evidence in words, `next` the one next action; `rule` is the rule's own text.
    """

    diagnosis: str  # "INPUT_BOUND"
    severity: str
    summary: str
    why: str
    next: str
    rule: str
    evidence: tuple[Evidence, ...] = ()
    ranks: tuple[int, ...] = ()
    phases: tuple[str, ...] = ()
    impact: Optional[Impact] = None


@dataclass(frozen=True)
class Diagnosis:
    """All that the rules said: the verdict, and every finding by section, the worst one first."""

    verdict: Finding
    step_time: tuple[Finding, ...]
    system: tuple[Finding, ...]
    memory: tuple[Finding, ...] = ()
