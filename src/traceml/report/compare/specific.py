"""Finds the change of one phase by the others: what drifts between runs drifts in all of them.

Two runs of one script differ by a percent or two as a whole: clocks, the timer's slack, what else the host does. All
phases share most of that, so of a step that waits rather than computes the phases that nobody changed tell how much it
was, and how far a phase strays by itself. Sleeping pairs of 20 ms steps differed by 1.6 % (a standard deviation) as a
whole, and a phase by 0.3 % of the step beside what all shared (`make compare-budget`). Repeats tell both themselves, of
steps that compute, too: where one run of five met a machine that was a third slower, all of its phases were.
"""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING, Mapping, NamedTuple, Optional, Sequence

from traceml.analysis.between import of_repeats, pooled_spread
from traceml.analysis.redraw import BlockTimes, drift_share
from traceml.report.compare.comparable import are_interleaved
from traceml.report.compare.drift import has_repeats
from traceml.report.compare.times import REST, STEP, RunTimes, cpu_share_of, parts_of, waited_share_of

if TYPE_CHECKING:
    from traceml.analysis.between import Distance
    from traceml.report.compare.limits import CompareLimits

_OF_MEDIANS = (
    1.2533 * 1.4826
)  # a median's standard error, of the median distance from it, times the root of their number
_STILL_LARGE = 0.25  # of what a phase must have to matter


class Specific(NamedTuple):
    """What one phase alone changed by, and how far that may be off: shares of the step. 0: no phase changed alone."""

    share: float
    floor: float
    phase: Optional[str] = None


def specific_change(
    before: Sequence[RunTimes], after: Sequence[RunTimes], shared: tuple[str, ...], limits: CompareLimits
) -> Optional[Specific]:
    """The change of the one phase that changed otherwise than the others; None where that cannot be told."""
    if has_repeats(before, after):
        took_turns = are_interleaved([run.report for run in before], [run.report for run in after])
        return _of_repeats(before, after, shared, limits) if took_turns else None
    is_pair = len(before) == len(after) == 1
    return _of_pair(before, after, shared, limits) if is_pair else None


def _of_pair(
    before: Sequence[RunTimes], after: Sequence[RunTimes], shared: tuple[str, ...], limits: CompareLimits
) -> Optional[Specific]:
    """Only on the host's clock, of steps that wait rather than compute, and which had their cores.

    Where no phase changed alone, whatever the step changed by is shared, as drift is: the floor is drift's own.
    """
    if not all(_is_quiet(run, limits) for run in (*before, *after)):
        return None
    sides = [parts_of(run, shared) for run in (*before, *after)]
    typical = [_typical_of(side) for side in sides]
    step_ms = median(sides[0].parts[STEP])
    names = _large(typical, shared, limits.alike_phase_share * step_ms)
    if len(names) < limits.specific_num_phases:
        return None
    common = median(typical[1][name] / typical[0][name] for name in names)
    excess = {name: typical[1][name] - common * typical[0][name] for name in names}
    floors = {name: _floor_ms(name, sides, step_ms, limits) for name in names}
    top = max(names, key=lambda name: abs(excess[name]))
    others = [name for name in names if name != top]
    strayed = max(abs(excess[name]) for name in others)
    floor = math.hypot(floors[top], limits.specific_strays * strayed)
    if top == REST:
        return None
    left = math.log1p(excess[top] / (common * typical[0][top]))
    is_common_small = abs(math.log(common)) <= limits.specific_common * abs(left)
    if abs(excess[top]) <= floor or not is_common_small or any(abs(excess[name]) > floors[name] for name in others):
        return Specific(0.0, limits.shared_drift_share)
    return Specific(excess[top] / step_ms, floor / step_ms, top)


def _of_repeats(
    before: Sequence[RunTimes], after: Sequence[RunTimes], shared: tuple[str, ...], limits: CompareLimits
) -> Optional[Specific]:
    """Each run's phase is held against its others, so what slows all of a run is not in it; the spread decides.

    None where no phase, or more than one, changed so, or where it may as well be the others that changed: that they did
    not is told by their middle run, so four a side are needed.
    """
    if min(len(before), len(after)) < limits.specific_num_repeats:
        return None
    sides = [[_typical_of(parts_of(run, shared)) for run in side] for side in (before, after)]
    steps = [fmean(run[STEP] for run in side) for side in sides]
    everyone = [run for side in sides for run in side]
    names = _large(everyone, shared, limits.alike_phase_share * min(steps))
    if len(names) < limits.specific_num_phases:
        return None
    found = {name: _contrast(sides, name, [other for other in names if other != name]) for name in names}
    top = max(names, key=lambda name: abs(found[name].estimate) * fmean(run[name] for run in everyone))
    others = [name for name in names if name != top]
    common = of_repeats(*([_log(run, others) for run in side] for side in sides))
    strays = [_contrast(sides, name, [other for other in others if other != name]) for name in others]
    is_common_small = common.low <= 0 <= common.high
    # Were it the others that changed, and not the phase, they would have moved by as much the other way.
    room = limits.specific_common * abs(found[top].estimate)
    is_common_small &= abs(common.estimate) <= room
    is_common_small &= not common.low - room <= -found[top].estimate <= common.high + room
    is_alone = _is_sure(found[top], sides, limits) and not any(_is_sure(one, sides, limits) for one in strays)
    if top == REST or not is_common_small or not is_alone:
        return None
    weight = fmean(run[top] for run in sides[0]) / steps[0]
    share, *ends = (weight * math.expm1(log) for log in (found[top].estimate, found[top].low, found[top].high))
    if abs(share) < limits.specific_step_share:
        return None
    return Specific(share, max(abs(end - share) for end in ends), top)


def of_step(found: Optional[Specific], typical: Distance, limits: CompareLimits) -> Optional[Specific]:
    """The phase's change, where the step changed in its direction; else what the step changed by is shared."""
    if found is None or not found.share or found.share * typical.estimate > 0:
        return found
    return Specific(0.0, limits.shared_drift_share)


def sharpened(typical: Distance, found: Optional[Specific]) -> Distance:
    """The step's distance where one phase has changed it: what the phase says, as far as the step's own interval goes.

    What all phases share is drift, and not in it.
    """
    if found is None or not found.share:
        return typical
    logs = [math.log1p(max(found.share + off, -0.9)) for off in (-found.floor, 0.0, found.floor)]
    low, estimate, high = (min(max(log, typical.low), typical.high) for log in logs)
    return typical.__class__(estimate, low, high)


def floor_of(drift: float, found: Optional[Specific]) -> float:
    """The share (0..1) that is allowed for drift between a pair's runs, where it is known what their phases share."""
    if found is None:
        return drift
    return min(drift, found.floor) if found.share else max(drift, found.floor)


class _Contrast(NamedTuple):
    """How far a phase moved against others, of logarithms, and its standard deviation between repeats."""

    estimate: float
    low: float
    high: float
    spread: float


def _contrast(sides: Sequence[Sequence[Mapping[str, float]]], name: str, others: Sequence[str]) -> _Contrast:
    against = [[_log(run, [name]) - _log(run, others) for run in side] for side in sides]
    found = of_repeats(against[0], against[1])
    return _Contrast(found.estimate, found.low, found.high, pooled_spread(against[0], against[1]))


def _is_sure(found: _Contrast, sides: Sequence[Sequence[object]], limits: CompareLimits) -> bool:
    """Whether a phase strayed: several are looked at, so by more than its interval asks for."""
    per_run = math.sqrt(sum(1 / len(side) for side in sides))
    least = limits.specific_errors * found.spread * per_run
    return (found.low > 0 or found.high < 0) and abs(found.estimate) > least


def _log(run: Mapping[str, float], names: Sequence[str]) -> float:
    return math.log(sum(run[name] for name in names))


def _typical_of(parts: BlockTimes) -> dict[str, float]:
    return {name: median(values) for name, values in parts.parts.items()}


def _large(runs: Sequence[Mapping[str, float]], shared: tuple[str, ...], least_ms: float) -> list[str]:
    """The phases that matter in every run; none where one matters in some only: then they are not what they were."""
    names = [name for name in (*shared, REST) if max(run[name] for run in runs) >= least_ms]
    return names if all(run[name] >= _STILL_LARGE * least_ms for run in runs for name in names) else []


def _is_quiet(run: RunTimes, limits: CompareLimits) -> bool:
    cpu, waited = cpu_share_of(run.report), waited_share_of(run.report)
    if run.report.step_time.clock != "host" or cpu is None or waited is None:
        return False
    return cpu <= limits.specific_cpu_share and waited <= limits.specific_wait_share


def _floor_ms(name: str, sides: Sequence[BlockTimes], step_ms: float, limits: CompareLimits) -> float:
    """How far a phase that nobody changed may stray from what all share."""
    found = limits.specific_step_share * step_ms
    for side in sides:
        values = side.parts[name]
        middle = median(values)
        error = _OF_MEDIANS * median(abs(value - middle) for value in values) / math.sqrt(len(values))
        wandered = drift_share(BlockTimes(side.num_steps, values, {})) * middle
        found = math.hypot(found, limits.specific_strays * math.hypot(error, wandered))
    return found
