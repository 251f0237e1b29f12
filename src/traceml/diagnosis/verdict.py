"""Asks every rule and chooses the verdict: the largest price of the step time, or what is more severe elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Callable, Final, Mapping, Optional, Sequence

from traceml.analysis.facts import Facts
from traceml.diagnosis.alone import is_everybodys
from traceml.diagnosis.core_waits import explained_by_core_waits
from traceml.diagnosis.device import h2d_bound, host_bound
from traceml.diagnosis.finding import CRITICAL, SEVERITIES, Diagnosis, Finding
from traceml.diagnosis.overhead import overhead_bound
from traceml.diagnosis.ranks import comm_bound, rotating_straggler
from traceml.diagnosis.step_time import balanced, compute_bound, input_bound, insufficient_data
from traceml.diagnosis.straggler import slow_rank, straggler
from traceml.diagnosis.system import (
    SYSTEM_RULES,
    cpu_saturated,
    gpu_idle,
    gpu_throttled,
    host_memory_high,
    no_data,
    normal,
)
from traceml.diagnosis.thresholds import LIMITS, Thresholds
from traceml.diagnosis.when import with_steps
from traceml.schema import units

_UPPER_BOUNDS: Final = frozenset({"COMM_BOUND"})
_WON_OF_BOUND: Final = 0.5  # half-precision gradients, or a reduction every other step

Rule = Callable[[Facts, Thresholds], Optional[Finding]]

#: The rules that name a cause, with a price.
CAUSES: Final[tuple[Rule, ...]] = (
    straggler,
    rotating_straggler,
    input_bound,
    h2d_bound,
    comm_bound,
    overhead_bound,
    host_bound,
)

#: Every diagnosis that exists, by the rule that gives it, in the order of the documentation.
RULES: Final[Mapping[str, Rule]] = {
    "STRAGGLER": straggler,
    "ROTATING_STRAGGLER": rotating_straggler,
    "INPUT_BOUND": input_bound,
    "COMM_BOUND": comm_bound,
    "H2D_BOUND": h2d_bound,
    "OVERHEAD_BOUND": overhead_bound,
    "HOST_BOUND": host_bound,
    "COMPUTE_BOUND": compute_bound,
    "BALANCED": balanced,
    "SLOW_RANK": slow_rank,
    "INSUFFICIENT_DATA": insufficient_data,
    "CPU_SATURATED": cpu_saturated,
    "GPU_THROTTLED": gpu_throttled,
    "GPU_IDLE": gpu_idle,
    "HOST_MEMORY_HIGH": host_memory_high,
    "NORMAL": normal,
    "NO_DATA": no_data,
}


def diagnose(facts: Facts, limits: Thresholds = LIMITS) -> Diagnosis:
    """Judges a run, or a range of its steps.

    Args:
        facts: What is known of it.
        limits: The numbers the rules compare with.

    Returns:
        At least one finding for step time and one for the system, the first of each being the section's diagnosis, and
        the verdict: the most severe of them, ties to step time. Never raises, whatever the facts.
    """
    step_time, system = _without_events(facts, limits), _system(facts, limits)
    verdict = max((step_time[0], system[0]), key=lambda finding: SEVERITIES.index(finding.severity))
    return Diagnosis(verdict=verdict, step_time=step_time, system=system)


def _without_events(facts: Facts, limits: Thresholds) -> tuple[Finding, ...]:
    """Judges the other steps where a few very long waits for a rank would make the headline of all.

    What a rank does alone again and again, or what all do in a few steps, is told as it is: nothing is left out then.
    """
    found = _step_time(facts, limits)
    if facts.calm is None or any(finding.diagnosis == "OVERHEAD_BOUND" for finding in found):
        return found
    others = _step_time(facts.calm, limits)
    if others[0].diagnosis == "INSUFFICIENT_DATA":
        return found
    first = replace(others[0], why=f"{others[0].why}; judged without {_events_in_words(facts)}")
    return (first, *others[1:])


def _events_in_words(facts: Facts) -> str:
    longest_ns = max(ns for _, ns in facts.outliers)
    if len(facts.outliers) == 1:
        (step, _), *_ = facts.outliers
        return f"a wait of {units.duration(longest_ns)} that ended in step {units.count(step)}, which is an event"
    return f"{len(facts.outliers)} waits of up to {units.duration(longest_ns)}, which are events"


def _step_time(facts: Facts, limits: Thresholds) -> tuple[Finding, ...]:
    told = [finding for finding in (rule(facts, limits) for rule in CAUSES) if finding is not None]
    causes = [finding for finding in told if is_everybodys(finding, facts, limits)]
    beside = slow_rank(facts, limits)
    if causes:
        found = _in_order(causes, facts, limits)
    else:
        found = _only((insufficient_data, compute_bound, balanced), facts, limits)
    return found if beside is None else (*found, beside)


def _in_order(causes: Sequence[Finding], facts: Facts, limits: Thresholds) -> tuple[Finding, ...]:
    """The largest price first; behind them those that the wait for a core explains, which are told so."""
    placed = [with_steps(finding, facts, limits) for finding in causes]
    told = [(finding, explained_by_core_waits(finding, facts, limits)) for finding in placed]
    own = [finding for finding, explained in told if explained is None]
    others = [explained for _, explained in told if explained is not None]
    weight = partial(_weight, is_any_critical=any(finding.severity == CRITICAL for finding in own))
    return (*sorted(own, key=weight, reverse=True), *sorted(others, key=weight, reverse=True))


def _system(facts: Facts, limits: Thresholds) -> tuple[Finding, ...]:
    found = [finding for finding in (rule(facts, limits) for rule in SYSTEM_RULES) if finding is not None]
    if found:
        return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity), reverse=True))
    return _only((normal, no_data), facts, limits)


def _only(rules: tuple[Rule, ...], facts: Facts, limits: Thresholds) -> tuple[Finding, ...]:
    """The one finding of rules that exclude one another and leave no case out."""
    found = tuple(finding for finding in (rule(facts, limits) for rule in rules) if finding is not None)
    assert len(found) == 1, [finding.diagnosis for finding in found]
    return found


def _weight(finding: Finding, *, is_any_critical: bool) -> tuple[bool, float]:
    """A price; of one that is an upper bound what may be won of it, and that leads over no cause that is critical."""
    is_bound, impact = finding.diagnosis in _UPPER_BOUNDS, finding.impact
    price = 0.0 if impact is None else _WON_OF_BOUND * impact.low_ms if is_bound else impact.ms
    return not (is_bound and is_any_critical), price
