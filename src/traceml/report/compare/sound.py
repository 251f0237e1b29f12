"""Refuses a summary whose numbers no run can have, or whose parts contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator, Mapping, Optional, Sequence

from traceml.errors import RunError
from traceml.report.compare.times import REST, STEP
from traceml.schema import phases, units

if TYPE_CHECKING:
    from traceml.report.contract import BlockInfo, PeriodInfo, Report, StepTimeInfo

MAX_BLOCKS: Final = 64
_MAX_PHASES: Final = len(phases.PHASES) + 2 * phases.MAX_REGIONS  # the rest: what a newer version may have
_MOST: Final = 1e12  # ms, steps, samples a second: more is no training of this world
_MOST_BYTES: Final = 1 << 60
_MOST_RANKS: Final = 1 << 24
_MAX_NAME: Final = 60
_LONGEST_PHASE: Final = 4_096  # characters
#: Of numbers that are rounded to five digits, and of quantiles from buckets of 2 %.
_WITHIN: Final = 0.03
_LEAST_MS: Final = 0.01
_SHORTEST_MS: Final = 1e-6  # a nanosecond: no step is shorter
#: Of the steady steps that a rank has, at least so many are in blocks; all of them, as we write it.
_IN_BLOCKS: Final = 0.5
#: A phase below that share of its block is left out of it, at most (a small file: report/trim.py).
_LEFT_OUT: Final = 0.05
_MERGED: Final = "number of blocks"  # how the note begins, where every two blocks became one


def check(report: Report) -> None:
    """Passes a report that can be true.

    Raises:
        RunError: `damaged-summary`, with the first thing that cannot.
    """
    reason = next(_reasons(report), None)
    if reason is not None:
        name = units.clean(report.run.name)[:_MAX_NAME]
        message = f"The summary of run '{name}' is damaged: {reason}. Give another one."
        raise RunError(message, slug="damaged-summary")


def _reasons(report: Report) -> Iterator[str]:
    yield from _impossible(report)
    time = report.step_time
    if len(time.blocks) > MAX_BLOCKS:
        yield f"{len(time.blocks)} blocks, not at most {MAX_BLOCKS}"
    names = {STEP, REST} & time.phases.keys() or [name for name in time.phases if len(name) > _LONGEST_PHASE]
    if len(time.phases) > _MAX_PHASES or names:
        yield "it has phases that no run can have"
    for at, block in enumerate(time.blocks[:MAX_BLOCKS]):
        if not _is_block(block):
            yield f"block {at} is none: steps and times must be above 0"
    yield from _out_of_order("period_ms", time.period_ms)
    yield from _contradictions(report)


def _impossible(report: Report) -> Iterator[str]:
    for name, value, most in _numbers(report):
        if value is not None and not 0 <= value <= most:
            yield f"{name} is not within what a run can have"
    if report.run.world_size < 1:
        yield "run.world_size is below 1"
    if report.step_time.period_ms.mean == 0:
        yield "step_time.period_ms.mean is not above 0"


def _numbers(report: Report) -> Iterator[tuple[str, Optional[float], float]]:
    """Every number that a comparison reads: its place, its value, the most that it can be."""
    run, time, memory = report.run, report.step_time, report.step_memory
    yield from (("run.steps", run.steps, _MOST), ("run.startup_s", run.startup_s, _MOST))
    yield from (("run.world_size", run.world_size, _MOST_RANKS), ("run.micro_batches", run.micro_batches, _MOST))
    for name, period in (("period_ms", time.period_ms), ("wall_period_ms", time.wall_period_ms)):
        if period is not None:
            yield from ((f"step_time.{name}.{key}", value, _MOST) for key, value in vars(period).items())
    yield from (("step_time.phases", row.mean_ms, _MOST) for row in time.phases.values())
    for row in time.ranks.by_rank:
        yield "step_time.ranks.by_rank", row.period_ms, _MOST
        yield "step_time.ranks.by_rank", row.rank, _MOST_RANKS
        yield "step_time.ranks.by_rank", row.steps, _MOST
        yield from (("step_time.ranks.by_rank", ms, _MOST) for ms in row.phases_ms.values())
    for key, value in vars(report.throughput).items():
        yield f"throughput.{key}", value, _MOST
    for key in ("allocated_bytes", "peak_bytes"):
        sizes = getattr(memory, key)
        if sizes is not None:
            yield from ((f"step_memory.{key}", value, _MOST_BYTES) for value in (sizes.p50, sizes.max))
    yield from (("system.num_cores", report.system.num_cores, _MOST_RANKS),)
    yield from (("system.cpu_percent_mean", report.system.cpu_percent_mean, _MOST),)
    yield from (("process.cpu_percent_mean", report.process.cpu_percent_mean, _MOST),)
    yield from (("process.waited_for_core_pct", report.process.waited_for_core_pct, 101.0),)
    yield from (("coverage.ranks", row.lost_frames, _MOST) for row in report.coverage.ranks)


def _is_block(block: BlockInfo) -> bool:
    periods = [ms for ms in (block.period_ms, block.wall_period_ms) if ms is not None]
    is_timed = all(_SHORTEST_MS <= ms <= _MOST for ms in periods) and all(
        0 <= ms <= _MOST for ms in block.mean_ms.values()
    )
    return is_timed and 1 <= block.steps <= _MOST


def _out_of_order(name: str, period: PeriodInfo) -> Iterator[str]:
    known = [value for value in (period.p50, period.p95, period.p99, period.max) if value is not None]
    if any(low > _above(high) for low, high in zip(known, known[1:])):
        yield f"the quantiles of {name} are not in order"
    if period.mean is not None and period.max is not None and period.mean > _above(period.max):
        yield f"the mean of {name} is above its maximum"


def _contradictions(report: Report) -> Iterator[str]:
    """Between the blocks, which the verdict rests on, and what the same steps came to in all."""
    time = report.step_time
    mean_ms, blocks = time.period_ms.mean, time.blocks
    yield from _missing_steps(time)
    if not blocks or mean_ms is None or report.run.steps < 1:
        return  # nothing to compare: refused, or undecided, as such
    if sum(block.steps for block in blocks) > report.run.steps:
        yield "its blocks hold more steps than the run has"
    is_merged = any(note.startswith(_MERGED) for note in report.coverage.notes)
    parts = {name: row.mean_ms for name, row in time.phases.items() if row.mean_ms is not None}
    if parts and time.clock == "host" and not _agree(sum(parts.values()), mean_ms):
        yield "the phases do not add up to the period"
    rate, others = report.throughput.steps_per_s, parts.get(phases.EVAL, 0.0) + parts.get(phases.CHECKPOINT, 0.0)
    if rate and time.clock == "host" and not _agree(1e3 / rate, mean_ms - others):
        yield "the steps a second do not agree with the period"
    yield from (
        f"the blocks do not agree with the mean of {_said(name)}"
        for name in _disagreeing(time, parts, is_merged=is_merged)
    )
    medians = [(block.period_ms, block.steps) for block in blocks]
    walls = [(block.wall_period_ms, block.steps) for block in blocks if block.wall_period_ms is not None]
    yield from _medians_apart(time.period_ms, medians, is_merged=is_merged)
    if walls and time.wall_period_ms is not None:
        yield from _medians_apart(time.wall_period_ms, walls, is_merged=is_merged)


def _missing_steps(time: StepTimeInfo) -> Iterator[str]:
    ranks = time.ranks
    steady = next((row.steps for row in ranks.by_rank if row.rank == ranks.median), 0)
    held = sum(block.steps for block in time.blocks)
    if held < _IN_BLOCKS * steady:
        yield f"its blocks hold {units.count(held)} of {units.count(steady)} steady steps"


def _disagreeing(time: StepTimeInfo, parts: Mapping[str, float], *, is_merged: bool) -> Iterator[str]:
    """Phases whose mean is not that of their blocks; a block, or one of two that became one, may leave one out."""
    blocks = time.blocks
    total = sum(block.steps for block in blocks)
    for name in dict.fromkeys((*parts, *(name for block in blocks for name in block.mean_ms))):
        low = sum(block.mean_ms.get(name, 0.0) * block.steps for block in blocks) / total
        unsure = [block for block in blocks if is_merged or name not in block.mean_ms]
        room = sum(_LEFT_OUT * block.period_ms * block.steps for block in unsure) / total
        mean_ms = parts.get(name)
        if mean_ms is None or not _below(low) <= mean_ms <= _above(low + room):
            yield name


def _medians_apart(period: PeriodInfo, medians: Sequence[tuple[float, int]], *, is_merged: bool) -> Iterator[str]:
    """Half of the steps take the median at least, so that no mean is under half of it."""
    low, high = min(ms for ms, _ in medians), max(ms for ms, _ in medians)
    mean_ms = sum(ms * steps for ms, steps in medians) / sum(steps for _, steps in medians)
    if period.mean is not None and mean_ms > _above(2 * period.mean):
        yield "the blocks' medians are longer than its mean allows"
    if period.p50 is not None and not is_merged and not _below(low) <= period.p50 <= _above(high):
        yield "the blocks do not agree with the median of the period"
    if period.max is not None and high > _above(period.max):
        yield "a block's median is above the maximum of the period"


def _agree(one: float, two: float) -> bool:
    return _below(one) <= two <= _above(one)


def _above(ms: float) -> float:
    return ms * (1 + _WITHIN) + _LEAST_MS


def _below(ms: float) -> float:
    return ms * (1 - _WITHIN) - _LEAST_MS


def _said(name: str) -> str:
    return units.clean(name)[:_MAX_NAME]
