"""Divides the change of the mean step among the phases, each with its interval, so that they add up to it."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING, Callable, Mapping, Optional, Sequence

from traceml.analysis.between import CONFIDENCE, Distance, of_draws, of_repeats
from traceml.analysis.redraw import Redrawn, mean_of, redraw
from traceml.report.compare.contract import PhaseChange
from traceml.report.compare.drift import has_repeats
from traceml.report.compare.limits import CompareLimits
from traceml.report.compare.times import REST, STEP, RunTimes, means_of, parts_of
from traceml.report.shares import rounded
from traceml.schema import phases

if TYPE_CHECKING:
    from traceml.analysis.redraw import BlockTimes

_SEEDS = (1, 2)
_RESTS = (phases.IN_STEP, phases.BETWEEN_STEPS)
#: Where the time of a phase is in a run that does not measure it, so that neither can be compared alone.
_HIDES = {phases.SYNC: (phases.BACKWARD, *_RESTS)}


class Waterfall:
    """Both sides' parts, their draws where a side is a single run, and the distances between them.

    Args:
        before: One side's runs.
        after: The other's.
        limits: What is never called moved.
    """

    def __init__(self, before: Sequence[RunTimes], after: Sequence[RunTimes], limits: CompareLimits) -> None:
        everyone = (*before, *after)
        self.shared, self.unshared = _shared_phases(everyone)
        self._sides = before, after
        self._limits = limits
        self._is_repeated = has_repeats(before, after)
        self._means = [[means_of(run, self.shared) for run in side] for side in (before, after)]
        self._parts = [[parts_of(run, self.shared) for run in side] for side in (before, after)]
        # Of a lone run against several each is drawn all the same: the distance is of their means.
        self._draws: list[list[Redrawn]] = [[], []]
        if not self._is_repeated:
            self._draws = [
                [redraw(parts, seed=_SEEDS[side] + 2 * at) for at, parts in enumerate(group)]
                for side, group in enumerate(self._parts)
            ]

    @property
    def step_ms(self) -> tuple[float, float]:
        """The mean step of both sides."""
        return self._mean_of(0, STEP), self._mean_of(1, STEP)

    def typical(self, values: Sequence[Sequence[float]]) -> Distance:
        """The distance of the typical steps, of logarithms.

        Args:
            values: Each run's typical step, in ms, by side.
        """
        logs = [[math.log(value) for value in side] for side in values]
        if self._is_repeated:
            return of_repeats(logs[0], logs[1])
        drawn = [_averaged([[math.log(v) for v in run.typical] for run in side]) for side in self._draws]
        return of_draws(drawn[0], drawn[1], estimate=fmean(logs[1]) - fmean(logs[0]))

    def mean(self) -> Distance:
        """The distance of the mean steps, of logarithms, with more certainty than the others."""
        return self._distance(STEP, math.log, self._limits.mean_confidence)

    def part(self, name: str) -> Distance:
        """The distance of a part's means, in ms a step."""
        return self._distance(name, lambda value: value, CONFIDENCE)

    def rows(self, drift: float) -> tuple[PhaseChange, ...]:
        """A row a phase that any run spent time in, in the house's order, then the rest, then the step.

        Args:
            drift: The share (0..1) of the step that is allowed for drift: all of it can have met one phase.
        """
        parts = (*self.shared, REST) if self.shared else ()
        names = [name for name in parts if max(self._mean_of(0, name), self._mean_of(1, name)) > 0]
        return tuple(self._row(name, drift) for name in (*names, STEP))

    def change_of_all(self) -> Optional[float]:
        """By how much (a logarithm) every phase that matters changed alike, beyond chance; None where they did not."""
        limits, whole = self._limits, self.mean().estimate
        names = [name for name in self.shared if self._least_share(name) >= limits.alike_phase_share]
        covered = sum(self._mean_of(0, name) for name in names) / self.step_ms[0]
        if len(names) < limits.alike_num_phases or covered < limits.alike_cover_share:
            return None
        return whole if all(self._is_alike(name, whole) for name in names) else None

    def _least_share(self, name: str) -> float:
        return min(means[name] / means[STEP] for side in self._means for means in side)

    def _is_alike(self, name: str, whole: float) -> bool:
        limits, found = self._limits, self._distance(name, math.log, CONFIDENCE)
        half = (found.high - found.low) / 2
        is_sure = found.low > 0 if whole > 0 else found.high < 0
        room = max(limits.alike_within * abs(whole), min(half, limits.alike_interval * abs(whole)))
        return is_sure and abs(found.estimate - whole) <= room

    def typical_culprit(self) -> Optional[str]:
        """The phase whose typical time holds most of what the typical step changed by; None where none does.

        It is told by the medians over the blocks, which a few long steps do not move, where these hide it in the means.
        """
        whole = self._typical_change(STEP)
        changes = {name: self._typical_change(name) / whole for name in self.shared} if whole else {}
        name = max(changes, key=lambda name: changes[name], default=None)
        return name if name is not None and changes[name] >= self._limits.culprit_share else None

    def _typical_change(self, name: str) -> float:
        before, after = (fmean(median(parts.parts[name]) for parts in side) for side in self._parts)
        return after - before

    def _row(self, name: str, drift: float) -> PhaseChange:
        before, after = self._mean_of(0, name), self._mean_of(1, name)
        found = self.part(name).widened(drift * max(self.step_ms))
        change = after - before
        least = self._limits.phase_share * min(self.step_ms)
        moved = (found.low > 0 or found.high < 0) and abs(change) > least
        low, high = min(max(found.low, -before), change), max(found.high, change)  # nobody loses more than it had
        only = self._only(name)
        return PhaseChange(
            name, rounded(before), rounded(after), rounded(change), rounded(low), rounded(high), moved, only
        )

    def _only(self, name: str) -> Optional[str]:
        """The side whose runs alone have the phase."""
        if name in (STEP, REST):
            return None
        has_before, has_after = (any(name in run.phase_ms for run in side) for side in self._sides)
        return None if has_before and has_after else "before" if has_before else "after"

    def _mean_of(self, side: int, name: str) -> float:
        return fmean(means[name] for means in self._means[side])

    def _distance(self, name: str, of: Callable[[float], float], confidence: float) -> Distance:
        means = [[of(run[name]) for run in side] for side in self._means]
        if self._is_repeated:
            return of_repeats(means[0], means[1])
        drawn = [
            _averaged(
                [
                    _centred(draws.parts[name], parts=parts, name=name, exact=exact, of=of)
                    for draws, parts, exact in zip(self._draws[side], self._parts[side], self._means[side])
                ]
            )
            for side in (0, 1)
        ]
        return of_draws(drawn[0], drawn[1], estimate=fmean(means[1]) - fmean(means[0]), confidence=confidence)


def _centred(
    drawn: Sequence[float],
    *,
    parts: BlockTimes,
    name: str,
    exact: Mapping[str, float],
    of: Callable[[float], float],
) -> list[float]:
    """Draws moved to the part's exact mean: blocks leave out small phases, and are rounded."""
    shift, floor = exact[name] - mean_of(parts, name), exact[name] / 1e3
    return [of(max(value + shift, floor)) for value in drawn]


def _averaged(runs: Sequence[Sequence[float]]) -> list[float]:
    """Each draw's mean over the runs of a side."""
    return [fmean(column) for column in zip(*runs)]


def _shared_phases(everyone: Sequence[RunTimes]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The phases that are known of every run, and those that are unmeasured in some."""
    names = dict.fromkeys(phases.PHASES)
    names.update(dict.fromkeys(sorted({name for run in everyone for name in run.phase_ms} - set(phases.PHASES))))
    known = [name for name in names if any(run.phase_ms.get(name) for run in everyone)]
    unshared = tuple(name for name in known if not all(_is_known(run, name) for run in everyone))
    hidden = {*unshared, *(where for name in unshared for where in _HIDES.get(name, _RESTS))}
    return tuple(name for name in known if name not in hidden), unshared


def _is_known(run: RunTimes, name: str) -> bool:
    """Whether the phase was measured, or is surely not there: a region that was never entered, no compilation."""
    if name in run.phase_ms:
        return True
    if name == phases.COMPILE:
        return run.report.run.compilations == 0
    num_regions = sum(other.startswith(phases.REGION_PREFIX) for other in run.phase_ms)
    return name.startswith(phases.REGION_PREFIX) and num_regions < phases.MAX_REGIONS  # more go without a name
