"""Takes from a Report what a comparison rests on: its blocks, its means by phase, what else ran beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Mapping, Optional, Sequence

from traceml.analysis.redraw import BlockTimes
from traceml.errors import RunError

if TYPE_CHECKING:
    from traceml.report.contract import BlockInfo, Report

MAX_BLOCKS: Final = 64
STEP: Final = "step"  # all phases together
REST: Final = "rest"
_MOST: Final = 1e12  # ms, or steps: more is no training of this world
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
        RunError: `no-steps`, or `damaged-summary`: numbers that no run can have.
    """
    time, name = report.step_time, report.run.name
    if report.run.steps < 1:
        message = f"Run '{name}' has no steps to compare. `traceml view` says how it ended; give one that trained."
        raise RunError(message, slug="no-steps")
    _check(report)
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
    """The exact mean of each part of `parts_of`; they add up to the step's."""
    found = {phase: run.phase_ms[phase] for phase in phases}
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


def _check(report: Report) -> None:
    time = report.step_time
    if len(time.blocks) > MAX_BLOCKS:
        raise _damaged(report, f"{len(time.blocks)} blocks, not at most {MAX_BLOCKS}")
    for at, block in enumerate(time.blocks):
        if not _is_block(block):
            raise _damaged(report, f"block {at} is none: steps and times must be above 0")
    period = time.period_ms
    times = [period.mean, period.p50, period.p95, *(row.mean_ms for row in time.phases.values())]
    if not all(ms is None or 0 <= ms <= _MOST for ms in times) or period.mean == 0:
        raise _damaged(report, "a time is not above 0")


def _is_block(block: BlockInfo) -> bool:
    periods = [ms for ms in (block.period_ms, block.wall_period_ms) if ms is not None]
    is_timed = all(0 < ms <= _MOST for ms in periods) and all(0 <= ms <= _MOST for ms in block.mean_ms.values())
    return is_timed and 1 <= block.steps <= _MOST


def _damaged(report: Report, reason: str) -> RunError:
    message = f"The summary of run '{report.run.name}' is damaged: {reason}. Give another one."
    return RunError(message, slug="damaged-summary")
