"""Takes from a Report what a comparison rests on: its blocks, its means by phase, what else ran beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Mapping, Optional, Sequence

from traceml.analysis.redraw import BlockTimes
from traceml.errors import RunError
from traceml.schema import units

if TYPE_CHECKING:
    from traceml.report.contract import Report

STEP: Final = "step"  # all phases together
REST: Final = "all_else"
_MAX_NAME: Final = 60
_PERCENT: Final = 100.0


@dataclass(frozen=True)
class RunTimes:
    """A run's steady steps in ms: its blocks, and the exact mean of the step and of each phase that was measured."""

    report: Report
    blocks: BlockTimes  # one part: STEP; phases are cut out of it by `parts_of`
    mean_ms: float
    phase_ms: Mapping[str, float]


def times_of(report: Report, *, on_wall: bool = False) -> Optional[RunTimes]:
    """A run's times; None where it has steps and none of them was steady.

    Args:
        report: The run's.
        on_wall: On the wall's clock, which a run on the device's has beside it: the step alone, no phases.

    Raises:
        RunError: `no-steps`.
    """
    time, name = report.step_time, units.clean(report.run.name)[:_MAX_NAME]
    if report.run.steps < 1:
        message = f"Run '{name}' has no steps to compare. `traceml view` says how it ended; give one that trained."
        raise RunError(message, slug="no-steps")
    mean_ms = time.period_ms.mean
    if not time.blocks or mean_ms is None:
        return None
    steps, typical = tuple(block.steps for block in time.blocks), tuple(block.period_ms for block in time.blocks)
    if on_wall:
        walls = _walls(report) or typical
        mean_ms = (time.wall_period_ms and time.wall_period_ms.mean) or mean_ms
        return RunTimes(report, BlockTimes(steps, walls, {STEP: walls}), mean_ms, {})
    wholes = tuple(sum(block.mean_ms.values()) for block in time.blocks)
    phase_ms = {phase: row.mean_ms for phase, row in time.phases.items() if row.mean_ms is not None}
    return RunTimes(report, BlockTimes(steps, typical, {STEP: wholes}), mean_ms, phase_ms)


def need_the_wall(reports: Sequence[Report]) -> bool:
    """Whether the runs have two clocks, and all of them the wall's beside it."""
    clocks = {report.step_time.clock for report in reports}
    return len(clocks) > 1 and all(r.step_time.clock == "host" or _walls(r) is not None for r in reports)


def _walls(report: Report) -> Optional[tuple[float, ...]]:
    """The median period of each block on the wall's clock; None where that of one is not there."""
    known = [block.wall_period_ms for block in report.step_time.blocks if block.wall_period_ms is not None]
    return tuple(known) if known and len(known) == len(report.step_time.blocks) else None


def parts_of(run: RunTimes, phases: tuple[str, ...]) -> BlockTimes:
    """The run's blocks with the step, the given phases and the rest as parts; a phase that a block left out is 0."""
    blocks = run.report.step_time.blocks
    parts = {phase: tuple(block.mean_ms.get(phase, 0.0) for block in blocks) for phase in phases}
    rest = tuple(whole - sum(parts[phase][at] for phase in phases) for at, whole in enumerate(run.blocks.parts[STEP]))
    return BlockTimes(run.blocks.num_steps, run.blocks.typical, {**run.blocks.parts, **parts, REST: rest})


def means_of(run: RunTimes, phases: tuple[str, ...]) -> dict[str, float]:
    """The exact mean of each part of `parts_of`; they add up to the step's. A phase that the run does not have is 0."""
    found = {phase: run.phase_ms.get(phase, 0.0) for phase in phases}
    return {STEP: run.mean_ms, **found, REST: run.mean_ms - sum(found.values())}


def cpu_share_of(report: Report) -> Optional[float]:
    """The CPU's part (0..1) of a rank's time; None where it was not sampled."""
    percent = report.process.cpu_percent_mean
    if percent is None:
        return None
    return min(1.0, max(0.0, percent / _PERCENT / max(1, report.run.world_size)))


def neighbours_share_of(report: Report) -> Optional[float]:
    """The part (0..1) of the host's cores that others kept busy, the run's own loader workers among them."""
    busy, cores, own = report.system.cpu_percent_mean, report.system.num_cores, report.process.cpu_percent_mean
    if busy is None or cores is None or own is None or cores <= 0:
        return None
    return min(1.0, max(0.0, (busy - own / cores) / _PERCENT))


def waited_share_of(report: Report) -> Optional[float]:
    """The part (0..1) of its time that a training was ready to run and had no core; None where nobody counted."""
    percent = report.process.waited_for_core_pct
    return None if percent is None else min(1.0, max(0.0, percent / _PERCENT))


def has_workers(report: Report) -> bool:
    """Whether the loader has processes of its own."""
    num_workers = report.loader.get("num_workers")
    return isinstance(num_workers, int) and num_workers > 0
