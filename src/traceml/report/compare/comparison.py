"""Compares two runs, or two groups of repeats: the one question behind `traceml compare`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Final, Optional, Sequence

from traceml.analysis.between import pooled_spread
from traceml.analysis.redraw import typical_of
from traceml.errors import UsageError
from traceml.report.compare import contract, sentences
from traceml.report.compare.comparable import (
    are_interleaved,
    changed_settings,
    common_causes,
    notes_on,
    reasons_against,
    refuse_twins,
)
from traceml.report.compare.contract import (
    SCHEMA_VERSION,
    CompareVerdict,
    Comparison,
    RunBrief,
    StepChange,
)
from traceml.report.compare.drift import MOST, allowance, has_repeats, of_hosts
from traceml.report.compare.judge import (
    SLOWER,
    deciding_repeats,
    direction,
    judge,
    margins_of,
    may_be_slower,
    mean_direction,
    room_to_decide,
)
from traceml.report.compare.limits import LIMITS, CompareLimits
from traceml.report.compare.quantities import quantities_of
from traceml.report.compare.ranks import rank_behind, rank_changes
from traceml.report.compare.sound import check
from traceml.report.compare.specific import floor_of, of_step, sharpened, specific_change
from traceml.report.compare.times import REST, STEP, RunTimes, need_the_wall, times_of, waited_share_of
from traceml.report.compare.waterfall import Waterfall
from traceml.report.shares import rounded
from traceml.schema import units

if TYPE_CHECKING:
    from traceml.analysis.between import Distance
    from traceml.report.compare.contract import PhaseChange
    from traceml.report.compare.judge import Margins
    from traceml.report.compare.ranks import RankPhase
    from traceml.report.compare.specific import Specific
    from traceml.report.contract import Report

_PERCENT: Final = 100.0
_MOST_LOG: Final = 30.0  # of a ratio; more is no comparison, and would not be a number in JSON
_MAX_WORD: Final = 60  # characters
_MAX_NAME: Final = 255  # as long as a file's
_HALF_WIDTHS: Final = 1.96 * math.sqrt(2)  # standard deviations of one run in half the interval of two


@dataclass(frozen=True)
class _Sides:
    """Both sides, each run with its times; None: it has no steady step."""

    before: tuple[Report, ...]
    after: tuple[Report, ...]
    before_times: tuple[Optional[RunTimes], ...]
    after_times: tuple[Optional[RunTimes], ...]


@dataclass(frozen=True)
class _Found:
    """The numbers of a comparison that could be made."""

    typical: Distance  # of logarithms, drift allowed for
    mean: Distance
    typical_step: StepChange
    mean_step: StepChange
    rows: tuple[PhaseChange, ...]
    drift: float
    hosts: float  # of the drift what no repeats lower
    spread: float  # of logarithms, between repeats
    unshared: tuple[str, ...]
    typical_culprit: Optional[str]
    specific: Optional[Specific]
    change_of_all: Optional[float]  # of logarithms
    behind: Optional[RankPhase]


def compare(
    before: Sequence[Report],
    after: Sequence[Report],
    *,
    margin: Optional[float] = None,
    limits: CompareLimits = LIMITS,
) -> Comparison:
    """What moved from one run to another, or from some repeats to others.

    The verdict rests on the median step, the waterfall on means by phase, both on the steady steps' blocks. The same
    reports give the same comparison.

    Args:
        before: At least one run.
        after: At least one.
        margin: A share (0..1): only more is a change, and what lies within is the same; None: 1 % and 3 %.
        limits: What is judged by.

    Raises:
        RunError: `no-steps`, or `damaged-summary`: numbers that no run can have, or that contradict each other.
        UsageError: `usage`: a side without a run.
    """
    if not before or not after:
        raise UsageError("compare: two runs are needed, one before and one after.", slug="usage")
    for report in (*before, *after):
        check(report)
    refuse_twins(before, after)
    on_wall = need_the_wall((*before, *after))
    times = [tuple(times_of(report, on_wall=on_wall) for report in side) for side in (before, after)]
    sides = _Sides(tuple(before), tuple(after), times[0], times[1])
    margins = margins_of(margin, limits)
    reasons = reasons_against(before, after, limits)
    if reasons:
        return _unjudged(sides, _incomparable(reasons), margins)
    short = _too_short(sides, limits)
    if short:
        return _unjudged(sides, short, margins)
    found = _measure([run for run in sides.before_times if run], [run for run in sides.after_times if run], limits)
    return _judged(sides, found, margins)


def _measure(before: Sequence[RunTimes], after: Sequence[RunTimes], limits: CompareLimits) -> _Found:
    hosts = of_hosts(before, after, limits)
    fall = Waterfall(before, after, limits)
    steps = [[typical_of(run.blocks) for run in side] for side in (before, after)]
    within = fall.typical(steps)
    specific = None if hosts else of_step(specific_change(before, after, fall.shared, limits), within, limits)
    unknown = allowance(before, after, limits)
    drift = floor_of(unknown, specific)
    allowed = math.log1p(max(unknown, drift))  # where one phase tells, the step's own interval still bounds it
    typical, mean = sharpened(within.widened(allowed), specific), fall.mean().widened(allowed)
    if has_repeats(before, after):
        spread = pooled_spread(*([math.log(ms) for ms in side] for side in steps))
    else:
        spread = ((typical.high - typical.low) / 2 - math.log1p(hosts)) / _HALF_WIDTHS
    return _Found(
        typical=typical,
        mean=mean,
        typical_step=_step_change(*_said_of(steps, typical), typical),
        mean_step=_step_change(*fall.step_ms, mean),
        rows=fall.rows(drift),
        drift=drift,
        hosts=hosts,
        spread=spread,
        unshared=fall.unshared,
        typical_culprit=fall.typical_culprit(),
        specific=specific,
        change_of_all=fall.change_of_all(),
        behind=rank_behind(
            [run.report for run in before],
            [run.report for run in after],
            step_ms=fall.step_ms,
            drift=drift,
            limits=limits,
        ),
    )


def _said_of(steps: Sequence[Sequence[float]], typical: Distance) -> tuple[float, float]:
    """A typical step before and after, in ms, as far apart as the distance says; their middle is the runs' own."""
    middle = fmean(fmean(math.log(ms) for ms in side) for side in steps)
    return math.exp(middle - typical.estimate / 2), math.exp(middle + typical.estimate / 2)


def _judged(sides: _Sides, found: _Found, margins: Margins) -> Comparison:
    step_ms = found.mean_step.before_ms
    # A new name may have been given to what was there before: it is no proof that time moved.
    moved = {row.phase: row.change_ms / step_ms for row in found.rows if row.moved and not row.only}
    moved = {phase: share for phase, share in moved.items() if phase not in (STEP, REST)}
    diagnosis = judge(found.typical, found.mean, moved, margins)
    of_typical, of_mean = direction(found.typical, margins), mean_direction(found.typical, found.mean, margins)
    is_slower = SLOWER in (of_typical, of_mean)
    is_untold = found.drift >= MOST and diagnosis == contract.UNDECIDED
    found = _untold(found) if is_untold else found
    alike_pct = _alike_pct(diagnosis, found)
    phase, behind = None, None
    if alike_pct is None:
        phase = _culprit(diagnosis, found, of_typical=of_typical, is_slower=is_slower)
        behind = _behind(diagnosis, found, phase)
    phase = behind.phase if behind else phase
    room = None if is_untold or diagnosis != contract.UNDECIDED else room_to_decide(found.typical, margins)
    verdict = CompareVerdict(
        diagnosis=diagnosis,
        summary=_summary(diagnosis, sides, found, margins, alike_pct=alike_pct),
        where=sentences.where(found.rows, diagnosis, phase=phase, behind=behind, is_alike=alike_pct is not None),
        next=_next(diagnosis, sides, found, phase=phase, behind=behind, room=room, is_alike=alike_pct is not None),
        basis=_basis(sides, found),
        phase=phase,
        rank=behind.rank if behind else None,
        is_slower=is_slower,
        is_open=may_be_slower(diagnosis, found.typical, found.mean, margins),
        repeats=_repeats(sides, found, room),
        alike_pct=alike_pct,
    )
    return _comparison(sides, verdict, margins, found)


def _untold(found: _Found) -> _Found:
    """Without the intervals, which would be as wide as the page."""
    typical, mean = (replace(step, low_pct=None, high_pct=None) for step in (found.typical_step, found.mean_step))
    rows = tuple(replace(row, low_ms=None, high_ms=None) for row in found.rows)
    return replace(found, typical_step=typical, mean_step=mean, rows=rows)


def _summary(diagnosis: str, sides: _Sides, found: _Found, margins: Margins, *, alike_pct: Optional[float]) -> str:
    if found.typical_step.low_pct is None:
        numbers = len(sides.before), len(sides.after)
        return sentences.summary_of_starved(found.typical_step, num_before=numbers[0], num_after=numbers[1])
    text = sentences.summary(
        diagnosis,
        found.typical_step,
        found.mean_step,
        same_pct=_PERCENT * margins.same,
        change_pct=_PERCENT * margins.change,
    )
    if diagnosis == contract.UNDECIDED:
        return " ".join((text, *sentences.what_moved(found.rows)))
    return text if alike_pct is None else f"{text} {_every_phase(alike_pct, sides)}"


def _basis(sides: _Sides, found: _Found) -> str:
    return sentences.basis(
        num_before=len(sides.before),
        num_after=len(sides.after),
        drift_pct=_PERCENT * found.drift,
        is_repeated=_is_repeated(sides),
        is_interleaved=are_interleaved(sides.before, sides.after),
        is_counted=any(
            (waited_share_of(report) or 0.0) >= LIMITS.starved_wait_share for report in (*sides.before, *sides.after)
        ),
    )


def _is_repeated(sides: _Sides) -> bool:
    return min(len(sides.before), len(sides.after)) > 1


def _next(
    diagnosis: str,
    sides: _Sides,
    found: _Found,
    *,
    phase: Optional[str],
    behind: Optional[RankPhase],
    room: Optional[float],
    is_alike: bool,
) -> str:
    if room is not None and room <= math.log1p(found.hosts):
        return sentences.next_host(_PERCENT * found.hosts)
    if diagnosis == contract.UNDECIDED:
        repeats, is_starved = _repeats(sides, found, room), found.drift >= MOST
        text = sentences.next_repeats(repeats, is_repeated=_is_repeated(sides), is_starved=is_starved)
        moved = None if is_starved else sentences.surely_moved(found.rows)
        return text if moved is None else sentences.next_of_moved(moved.phase, text)
    if phase is not None:
        is_new = any(row.phase == phase and row.only == "after" for row in found.rows)
        rank = behind.rank if behind else None
        return sentences.next_step(diagnosis, phase, after=sides.after[-1], rank=rank, is_new=is_new)
    return sentences.next_without_phase(
        diagnosis,
        is_alike=is_alike,
        is_repeated=_is_repeated(sides),
        has_phases=any(row.phase not in (STEP, REST) for row in found.rows),
        unmeasured=found.unshared if _is_unmeasured(found.rows) else (),
    )


def _repeats(sides: _Sides, found: _Found, room: Optional[float]) -> Optional[int]:
    """About how many runs a side would decide: more than there are, or as many that take turns where these did not."""
    if room is None:
        return None
    repeats = deciding_repeats(room, spread=found.spread, floor=math.log1p(found.hosts))
    would_lower = _is_repeated(sides) and found.drift > found.hosts
    least = max(len(sides.before), len(sides.after)) + (0 if would_lower else 1)
    return repeats and max(repeats, least)


def _is_unmeasured(rows: Sequence[PhaseChange]) -> bool:
    """Whether the change of the step is mostly in what is not measured in every run."""
    change_ms = {row.phase: row.change_ms for row in rows}
    return abs(change_ms.get(REST, 0.0)) >= LIMITS.culprit_share * abs(change_ms[STEP])


def _culprit(diagnosis: str, found: _Found, *, of_typical: int, is_slower: bool) -> Optional[str]:
    if found.specific and found.specific.phase and found.specific.share * of_typical > 0:
        return found.specific.phase
    directions = {contract.REGRESSION: True, contract.IMPROVEMENT: False, contract.MIXED: True}  # what got worse
    phase = sentences.culprit(found.rows, is_slower=directions.get(diagnosis))
    phase = phase or sentences.culprit(found.rows, is_slower=None if diagnosis == contract.MIXED else is_slower)
    return found.typical_culprit if phase is None and of_typical else phase


def _behind(diagnosis: str, found: _Found, phase: Optional[str]) -> Optional[RankPhase]:
    """The rank behind a change, where the waterfall's own rank spent the time in another phase: waiting."""
    behind = found.behind
    if behind is None or behind.phase == phase or diagnosis in (contract.SAME, contract.UNDECIDED):
        return None
    return behind


def _alike_pct(diagnosis: str, found: _Found) -> Optional[float]:
    """By how much every phase changed alike, where the verdict is a change in that direction."""
    if found.change_of_all is None or diagnosis not in (contract.REGRESSION, contract.IMPROVEMENT):
        return None
    pct = _pct(found.change_of_all)
    return pct if (pct > 0) == (diagnosis == contract.REGRESSION) else None


def _every_phase(alike_pct: float, sides: _Sides) -> str:
    """Repeats that took turns met the same machine."""
    took_turns = min(len(sides.before), len(sides.after)) > 1 and are_interleaved(sides.before, sides.after)
    causes = common_causes(changed_settings(sides.before, sides.after))
    return sentences.every_phase(alike_pct, causes=causes, may_be_machine=not took_turns)


def _incomparable(reasons: tuple[str, ...]) -> CompareVerdict:
    text, next_step = f"{'; '.join(reasons)}.", "compare runs of one setting; the speed below stands for itself"
    return CompareVerdict(
        contract.INCOMPARABLE, text, "", next_step, "", None, is_slower=False, is_open=True, reasons=reasons
    )


def _too_short(sides: _Sides, limits: CompareLimits) -> Optional[CompareVerdict]:
    """The verdict where a run's steps do not suffice; None: they do."""
    for report, times in zip((*sides.before, *sides.after), (*sides.before_times, *sides.after_times)):
        steady, name = sum(times.blocks.num_steps) if times else 0, units.clean(report.run.name)[:_MAX_WORD]
        if steady < limits.min_steady_steps:
            has = f"{steady} steady step{'s' * (steady != 1)}"
            known = f"the run '{name}' has {has}, a comparison needs {limits.min_steady_steps}."
            return _undecided_for(known, "let the runs take more steps: some 100 show a change of 5 %")
        if report.throughput.steps_per_s is None and report.run.inferred:
            next_step = "put the step into `with traceml.trace_step(model):`, then run both again"
            return _undecided_for(f"the inferred steps of the run '{name}' cannot be trusted.", next_step)
    return None


def _undecided_for(why: str, next_step: str) -> CompareVerdict:
    return CompareVerdict(contract.UNDECIDED, why, "", next_step, "", None, is_slower=False, is_open=True)


def _unjudged(sides: _Sides, verdict: CompareVerdict, margins: Margins) -> Comparison:
    return _comparison(sides, verdict, margins, None)


def _comparison(sides: _Sides, verdict: CompareVerdict, margins: Margins, found: Optional[_Found]) -> Comparison:
    return Comparison(
        schema_version=SCHEMA_VERSION,
        verdict=verdict,
        margin_pct=rounded(_PERCENT * margins.same),
        change_margin_pct=rounded(_PERCENT * margins.change),
        drift_pct=rounded(_PERCENT * found.drift) if found else 0.0,
        typical=found.typical_step if found else None,
        mean=found.mean_step if found else None,
        phases=found.rows if found else (),
        quantities=quantities_of(sides.before, sides.after),
        ranks=rank_changes(sides.before[0], sides.after[0]) if found else (),
        changed=changed_settings(sides.before, sides.after),
        before=tuple(_brief(r, t) for r, t in zip(sides.before, sides.before_times)),
        after=tuple(_brief(r, t) for r, t in zip(sides.after, sides.after_times)),
        notes=notes_on(
            sides.before, sides.after, unshared=found.unshared if found else (), rows=found.rows if found else ()
        ),
    )


def _step_change(before_ms: float, after_ms: float, found: Distance) -> StepChange:
    return StepChange(rounded(before_ms), rounded(after_ms), _pct(found.estimate), _pct(found.low), _pct(found.high))


def _pct(log: float) -> float:
    return rounded(_PERCENT * math.expm1(min(log, _MOST_LOG)))


def _brief(report: Report, times: Optional[RunTimes]) -> RunBrief:
    run, verdict = report.run, report.verdict
    return RunBrief(
        name=run.name[:_MAX_NAME],
        folder=run.folder[:_MAX_NAME],
        status=run.status[:_MAX_WORD],
        started_at=run.started_at[:_MAX_WORD],
        steps=run.steps,
        steady_steps=sum(times.blocks.num_steps) if times else 0,
        typical_ms=rounded(typical_of(times.blocks)) if times else None,
        diagnosis=verdict.diagnosis[:_MAX_WORD],
        severity=verdict.severity[:_MAX_WORD],
        summary=sentences.short(verdict.summary),
    )
