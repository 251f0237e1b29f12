"""Says how much of a change between two runs may be the machine's: the floor that a single pair is judged above."""

from __future__ import annotations

from typing import Sequence

from traceml.analysis.redraw import drift_share
from traceml.report.compare.comparable import are_interleaved, have_one_host
from traceml.report.compare.limits import CompareLimits
from traceml.report.compare.times import RunTimes, cpu_share_of, neighbours_share_of


def allowance(before: Sequence[RunTimes], after: Sequence[RunTimes], limits: CompareLimits) -> float:
    """The share (0..1) that is allowed for drift between runs, on either side of the interval.

    Repeats that took turns show the drift in their own spread: nothing is added. Repeats one side after the other may
    both have met another machine: the base is added. A single run a side knows nothing of others: the base, more where
    the CPU does the work beside other tasks, and more where the run wandered by itself.
    """
    reports = [run.report for run in before], [run.report for run in after]
    hosts = 0.0 if have_one_host(*reports) else limits.drift_of_hosts_share
    if has_repeats(before, after):
        return hosts + (0.0 if are_interleaved(*reports) else limits.drift_share)
    return hosts + max(_of_one(run, limits) for run in (*before, *after))


def has_repeats(before: Sequence[RunTimes], after: Sequence[RunTimes]) -> bool:
    """Whether each side has a spread of its own: two runs or more."""
    return min(len(before), len(after)) > 1


def _of_one(run: RunTimes, limits: CompareLimits) -> float:
    own = limits.drift_of_own_spreads * drift_share(run.blocks)
    if run.report.step_time.clock == "device":
        return limits.drift_share + own  # the device works; what else the CPUs did is in `own`
    cpu, neighbours = cpu_share_of(run.report), neighbours_share_of(run.report)
    cpu = 1.0 if cpu is None else cpu
    neighbours = limits.unknown_neighbours_share if neighbours is None else neighbours
    of_cpu = limits.drift_of_cpu_share + limits.drift_of_neighbours_share * neighbours
    return limits.drift_share + cpu * of_cpu + own
