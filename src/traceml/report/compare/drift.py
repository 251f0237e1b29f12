"""Says how much of a change between two runs may be the machine's: the floor that a single pair is judged above."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Final, Sequence

from traceml.analysis.redraw import drift_share
from traceml.report.compare.comparable import are_interleaved, have_one_host
from traceml.report.compare.limits import CompareLimits
from traceml.report.compare.times import RunTimes, cpu_share_of, has_workers, neighbours_share_of, waited_share_of

if TYPE_CHECKING:
    from traceml.report.contract import Report

MOST: Final = 10.0  # a run of eleven times the length says nothing of the other


def allowance(before: Sequence[RunTimes], after: Sequence[RunTimes], limits: CompareLimits) -> float:
    """The share (0..1) that is allowed for drift between runs, on either side of the interval.

    Repeats that took turns show the drift in their own spread: nothing is added. Repeats one side after the other may
    both have met another machine, as single runs may. A single run a side knows nothing of others: the base, more where
    the CPU does the work beside other tasks, where the run waited for a core, and where it wandered by itself.
    """
    reports = [run.report for run in before], [run.report for run in after]
    hosts = of_hosts(before, after, limits)
    if has_repeats(before, after):
        return hosts + (0.0 if are_interleaved(*reports) else _of_sides(before, after, limits))
    return min(MOST, hosts + max(_of_one(run, limits) for run in (*before, *after)))


def of_hosts(before: Sequence[RunTimes], after: Sequence[RunTimes], limits: CompareLimits) -> float:
    """The share that is allowed for the difference between hosts, however many repeats there are."""
    reports = [run.report for run in before], [run.report for run in after]
    return 0.0 if have_one_host(*reports) else limits.drift_of_hosts_share


def has_repeats(before: Sequence[RunTimes], after: Sequence[RunTimes]) -> bool:
    """Whether each side has a spread of its own: two runs or more."""
    return min(len(before), len(after)) > 1


def _of_sides(before: Sequence[RunTimes], after: Sequence[RunTimes], limits: CompareLimits) -> float:
    """Of repeats one side after the other: what a single run of the side that had it worse is allowed."""
    allowed = (median(_of_one(run, limits) for run in side) for side in (before, after))
    return min(MOST, max(limits.drift_share, *allowed))


def _of_one(run: RunTimes, limits: CompareLimits) -> float:
    """The base and the run's own wandering come from different things, so their squares add up."""
    own = limits.drift_of_own_spreads * drift_share(run.blocks)
    return math.hypot(limits.drift_share + _of_neighbours(run, limits), own)


def _of_neighbours(run: RunTimes, limits: CompareLimits) -> float:
    if run.report.step_time.clock == "device":
        return 0.0  # the device works; what the CPUs did beside it shows in the run's own wandering
    cpu, neighbours = cpu_share_of(run.report), neighbours_share_of(run.report)
    cpu = 1.0 if cpu is None else cpu
    neighbours = limits.unknown_neighbours_share if neighbours is None else neighbours
    of_cpu = cpu * (limits.drift_of_cpu_share + limits.drift_of_neighbours_share * neighbours)
    return of_cpu + _of_queue(run.report, neighbours, limits)


def _of_queue(report: Report, neighbours: float, limits: CompareLimits) -> float:
    """What waiting for a core may have added: by the kernel's own count where there is one, else by the host's load.

    A stall of the script's own (a sleep, a slow disk) is no wait for a core. Of the loader's workers nobody counts the
    waits: where the training waited at all, theirs may be longer.
    """
    waited = waited_share_of(report)
    if waited is None:
        return _of_load(report, neighbours, limits)
    if waited >= limits.starved_wait_share:
        return MOST
    of_waits = max(0.0, limits.most_waits_of_median * waited / (1 - waited) - limits.drift_share)
    if has_workers(report) and waited >= limits.contended_from:
        return max(of_waits, min(MOST, _of_load(report, neighbours, limits)))
    return of_waits


def _of_load(report: Report, neighbours: float, limits: CompareLimits) -> float:
    period = report.step_time.period_ms
    spread = max(0.0, period.p95 / period.p50 - 1) if period.p95 and period.p50 else 0.0
    if neighbours >= limits.starved_from and spread >= limits.starved_spread:
        return MOST
    full = (neighbours - limits.full_host_from) / (limits.full_host_at - limits.full_host_from)
    return limits.drift_of_spread * spread * min(1.0, max(0.0, full))
