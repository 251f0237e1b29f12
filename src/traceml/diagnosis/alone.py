"""Judges whether the ranks lose their time to what one of them does alone in a few steps: it evaluates, it saves."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, Optional

from traceml.diagnosis.core_waits import ALONE, core_wait_note
from traceml.diagnosis.finding import CRITICAL, WARNING, Evidence, Finding
from traceml.diagnosis.ground import judged_rank, undecided
from traceml.diagnosis.ledger_price import impact_of, unit_cost
from traceml.diagnosis.price import NS_PER_MS, rule_text, severity_of
from traceml.diagnosis.rank_advice import alone_advice
from traceml.diagnosis.sentences import spread_of
from traceml.schema import units
from traceml.schema.phases import (
    BETWEEN_STEPS,
    CHECKPOINT,
    EVAL,
    GC,
    IN_STEP,
    INPUT,
    REGION_PREFIX,
    label,
    region_name,
)

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, LedgerFacts, RankFacts
    from traceml.diagnosis.ledger_price import UnitCost
    from traceml.diagnosis.sentences import Spread
    from traceml.diagnosis.thresholds import Thresholds

IS_WORK: Final = (EVAL, CHECKPOINT)  # not waste: at most a warning
_OF_JUDGED: Final = ("INPUT_BOUND", "H2D_BOUND", "OVERHEAD_BOUND")
_DOES: Final = {
    EVAL: "evaluates",
    CHECKPOINT: "saves checkpoints",
    GC: "collects garbage",
    INPUT: "waits for data",
    BETWEEN_STEPS: "is busy between steps",
    IN_STEP: "is busy in the rest of the step",
}


def alone(facts: Facts, limits: Thresholds) -> Optional[Finding]:
    """All wait while one rank does alone, or longer than they, what it does in a few steps: at least 10 % and 0.5 ms.

    It holds most of what the ranks lose to one another, by time, and one part around the model (evaluation, checkpoint,
    a region, between steps, input) holds at least 60 % of what this rank does more than the others. One spell of what
    nobody named is an event and no finding.

    Next: let all ranks do a part each, do it less often, or beside the training.
    """
    rank, ledger = judged_rank(facts, limits), facts.ledger
    if rank is None or ledger is None or ledger.whole is None or undecided(facts, limits):
        return None
    whole = ledger.whole
    at = max(range(len(whole.ranks)), key=lambda place: whole.by_rank[place].gain.total)
    phase = _phase(ledger, at, limits)
    own = next((one for one in facts.ranks if one.state.identity.rank == whole.ranks[at]), None)
    if not phase or own is None or phase not in own.phases:
        return None
    cost = unit_cost(ledger, rank, lambda chunk: chunk.by_rank[at].gain)
    least_ns = limits.min_cost_ns * cost.steps_a_unit
    if cost.share < limits.alone_share or cost.share >= 1 or cost.mean_ns < least_ns:
        return None
    spread = spread_of(own.phases[phase], num_steps=own.num_steady, limits=limits)
    if not _is_told(spread, phase, limits):
        return None
    number = own.state.identity.rank
    if core_wait_note(facts, number, cost.mean_ns / cost.steps_a_unit, limits):
        return None
    impact = impact_of(cost, whole, facts)
    return Finding(
        diagnosis="OVERHEAD_BOUND",
        severity=severity_of(impact, rank, limits, at_most=WARNING if phase in IS_WORK else CRITICAL),
        summary=f"Rank {number} {_does(phase, is_alone=_is_alone(facts, own, phase, limits))}: all wait "
        f"{_of_all(cost.share * spread.held_share, rank)}, in "
        f"{units.count(spread.num_holding)} of {units.count(spread.num_steps)} steps.",
        why=_why(ledger, at, phase, cost),
        next=alone_advice(number, phase),
        rule=rule_text(alone),
        evidence=(
            Evidence(ALONE, impact.pct, 100 * limits.alone_share, "%"),
            Evidence("waiting a step", impact.ms, limits.min_cost_ns / NS_PER_MS, "ms"),
        ),
        ranks=(number,),
        phases=(phase,),
        impact=impact,
    )


def _phase(ledger: LedgerFacts, at: int, limits: Thresholds) -> str:
    """The one part around the model that makes this rank late; empty where none does, or where others are as late."""
    whole = ledger.whole
    assert whole is not None
    sums = whole.by_rank[at]
    if not whole.lost.total or sums.gain.total < limits.most_share * whole.lost.total:
        return ""
    most, phase = max(zip(sums.excess_ns, whole.phases))
    total = sum(ns for ns in sums.excess_ns if ns > 0)
    if most <= 0 or most < limits.excess_coverage * total or most < limits.most_share * sums.gain.total:
        return ""
    return phase if phase in _DOES or phase.startswith(REGION_PREFIX) else ""


def _is_told(spread: Spread, phase: str, limits: Thresholds) -> bool:
    """Whether it comes in a few steps, and is known by name or has come again."""
    is_named = phase in IS_WORK or phase.startswith(REGION_PREFIX)
    if spread.is_each or spread.held_share < limits.most_share:
        return False
    return spread.num_holding >= (1 if is_named else limits.min_spells)


def is_everybodys(finding: Finding, facts: Facts, limits: Thresholds) -> bool:
    """Whether a cost of the judged rank is one of the others, too; else the ledger tells what it costs them.

    The ranks wait for the last of them: what one does alone costs the others nothing while it is not the last.
    """
    is_of_ranks = facts.world_size > 1 and facts.ledger is not None and not undecided(facts, limits)
    if not is_of_ranks or finding.diagnosis not in _OF_JUDGED or any(one.name == ALONE for one in finding.evidence):
        return True
    own = next((rank for rank in facts.ranks if rank.state.identity.rank in finding.ranks[:1]), None)
    others = [rank.mean_ns(finding.phases[0]) or 0.0 for rank in facts.ranks if rank is not own and rank.num_steady]
    if own is None or not others:
        return True
    return median(others) >= limits.alike_share * (own.mean_ns(finding.phases[0]) or 0.0)


def _is_alone(facts: Facts, own: RankFacts, phase: str, limits: Thresholds) -> bool:
    """Whether the others do next to nothing of it: else they do it, too, and are done sooner."""
    others = [one.phase_ns(phase) or 0 for one in facts.ranks if one is not own and one.num_steady]
    return median(others or [0]) < limits.not_alone_share * (own.phase_ns(phase) or 0)


def _does(phase: str, *, is_alone: bool) -> str:
    does = f"is in the region '{region_name(phase)}'" if phase.startswith(REGION_PREFIX) else _DOES[phase]
    return f"alone {does}" if is_alone else f"{does} longer than the others"


def _of_all(share: float, rank: RankFacts) -> str:
    """How much of the run all wait, in words."""
    return f"{units.duration(share * rank.total_ns)} of {units.duration(rank.total_ns)}"


def _why(ledger: LedgerFacts, at: int, phase: str, cost: UnitCost) -> str:
    whole = ledger.whole
    assert whole is not None
    held = units.duration(cost.mean_ns / cost.steps_a_unit)
    lost = units.duration(whole.lost.total / whole.num_units / cost.steps_a_unit)
    return (
        f"{units.clean(label(phase))} of rank {whole.ranks[at]} holds {held} of the {lost} a step "
        "that the ranks lose to one another"
    )
