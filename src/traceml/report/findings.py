"""Turns what the rules said into the contract's verdict and findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

from traceml.report.contract import EvidenceInfo, FindingInfo, ImpactInfo, VerdictInfo
from traceml.report.shares import rounded

if TYPE_CHECKING:
    from traceml.diagnosis.finding import Diagnosis, Finding, Impact


def verdict_of(diagnosis: Diagnosis) -> VerdictInfo:
    """The leading finding, and the section it comes from."""
    finding = diagnosis.verdict
    section = "step_time"
    if finding not in diagnosis.step_time:
        section = "step_memory" if finding in diagnosis.memory else "system" if finding in diagnosis.system else section
    return VerdictInfo(
        diagnosis=finding.diagnosis,
        severity=finding.severity,
        summary=finding.summary,
        why=finding.why,
        next=finding.next,
        impact=_impact(finding.impact),
        section=section,
    )


def _impact(impact: Optional[Impact]) -> Optional[ImpactInfo]:
    if impact is None:
        return None
    return ImpactInfo(
        ms=rounded(impact.ms),
        pct=rounded(impact.pct),
        low_ms=rounded(impact.low_ms),
        high_ms=rounded(impact.high_ms),
        speedup=rounded(impact.speedup),
        steps=impact.num_steps,
    )


def findings_of(findings: Sequence[Finding]) -> tuple[FindingInfo, ...]:
    """A section's findings as the contract holds them."""
    return tuple(
        FindingInfo(
            diagnosis=f.diagnosis,
            severity=f.severity,
            summary=f.summary,
            why=f.why,
            next=f.next,
            rule=f.rule,
            ranks=f.ranks,
            phases=f.phases,
            impact=_impact(f.impact),
            evidence=tuple(EvidenceInfo(e.name, rounded(e.value), e.limit, e.unit) for e in f.evidence),
        )
        for f in findings
    )
