"""Says why runs cannot be compared, which of their settings differ, and what else one must know."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Final, Iterator, Optional, Sequence

from traceml.errors import UsageError
from traceml.report.compare.limits import CompareLimits
from traceml.report.compare.times import has_workers, need_the_wall, neighbours_share_of
from traceml.schema import units
from traceml.schema.phases import label

if TYPE_CHECKING:
    from traceml.report.compare.contract import PhaseChange
    from traceml.report.contract import Report

_LOADER: Final = ("num_workers", "batch_size", "pin_memory", "persistent_workers", "prefetch_factor", "dataset")
_COMMON: Final = frozenset({"torch", "python", "traceml", "host", "cores"})
_MAX_TEXT: Final = 60
_PAIR: Final = 2
_PARAMETERS: Final = re.compile("([0-9,]+) parameters")
_FULL: Final = 0.8  # of the cores
_WHOLE_WITHIN: Final = 1e-3  # rates are rounded: 32.004 samples a step are 32


def reasons_against(before: Sequence[Report], after: Sequence[Report], limits: CompareLimits) -> tuple[str, ...]:
    """Why the steps of these runs are not the same kind of step; empty: they can be compared."""
    everyone = (*before, *after)
    found = [
        _differ("world sizes", everyone, lambda r: r.run.world_size, units.count),
        _differ("devices", everyone, _device_names if all(r.system.devices for r in everyone) else _device_kind, str),
        None if need_the_wall(everyone) else _differ("clocks", everyone, _clock, lambda clock: f"the {clock}'s"),
        _other_models(everyone),
        _other_batch(everyone, limits),
        _other_updates(everyone),
    ]
    return tuple(reason for reason in found if reason)


def refuse_twins(before: Sequence[Report], after: Sequence[Report]) -> None:
    """The same run twice is no repeat, and none against itself, whatever its file is called.

    Raises:
        UsageError: `usage`.
    """
    everyone = (*before, *after)
    for at, report in enumerate(everyone):
        twin = next((place for place in range(at) if _is_one_run(report, everyone[place])), None)
        if twin is None:
            continue
        name, other = (units.clean(one.run.name)[:_MAX_TEXT] for one in (report, everyone[twin]))
        known = f"the run '{name}'" if name == other else f"the run '{other}', as '{name}' too,"
        both = f"{known} is on both sides: it has nothing to be compared with in itself."
        twice = f"{known} is given more than once: repeats are runs of their own."
        raise UsageError(f"compare: {both if twin < len(before) <= at else twice}", slug="usage")


def _is_one_run(one: Report, other: Report) -> bool:
    """By the id that each run has; of summaries without one by all that they say."""
    if one.run.run_id or other.run.run_id:
        return one.run.run_id == other.run.run_id
    return one == other


def changed_settings(before: Sequence[Report], after: Sequence[Report]) -> tuple[str, ...]:
    """The settings that differ between the first run of each side, as `num_workers 4 → 0`."""
    one, two = before[0], after[0]
    pairs: list[tuple[str, Any, Any]] = [
        (name, one.loader.get(name), two.loader.get(name)) for name in _LOADER if one.loader and two.loader
    ]
    pairs += [
        (name, getattr(one.run, key), getattr(two.run, key))
        for name, key in (
            ("script", "script"),
            ("model", "model"),
            ("torch", "torch_version"),
            ("python", "python_version"),
            ("traceml", "traceml_version"),
            ("host", "hostname"),
        )
    ]
    pairs.append(("cores", one.system.num_cores, two.system.num_cores))
    return tuple(f"{name} {_said(old)} → {_said(new)}" for name, old, new in pairs if old != new)


def common_causes(changed: Sequence[str]) -> tuple[str, ...]:
    """Of the settings that differ those that all phases feel: versions, cores, the host."""
    return tuple(text for text in changed if text.partition(" ")[0] in _COMMON)


def notes_on(
    before: Sequence[Report], after: Sequence[Report], *, unshared: Sequence[str], rows: Sequence[PhaseChange]
) -> tuple[str, ...]:
    """What one must know beside the numbers, a sentence each.

    Args:
        before: One side.
        after: The other.
        unshared: Phases that were not measured in every run.
        rows: The waterfall.
    """
    return (*_notes((*before, *after), unshared), *_notes_on_sides(rows))


def are_interleaved(before: Sequence[Report], after: Sequence[Report]) -> bool:
    """Whether the repeats of both sides took turns, so that a drift of the machine met both."""
    starts = [(_started(report), side) for side, group in enumerate((before, after)) for report in group]
    if any(start is None for start, _ in starts):
        return False
    sides = [side for _, side in sorted(starts, key=lambda one: one[0] or 0.0)]
    turns = sum(one != two for one, two in zip(sides, sides[1:]))
    return turns >= min(len(before), len(after))


def have_one_host(before: Sequence[Report], after: Sequence[Report]) -> bool:
    """Whether all runs were on one host, as far as they say."""
    return len({report.run.hostname for report in (*before, *after)}) == 1


def _notes(everyone: Sequence[Report], unshared: Sequence[str]) -> Iterator[str]:
    if need_the_wall(everyone):
        yield "the runs have other clocks: they are compared on the wall's, which all have, and by the step alone"
    if unshared:
        names = ", ".join(label(phase) for phase in unshared)
        yield f"{names}: not measured in every run, so it stands in all else"
    if len({report.run.inferred for report in everyone}) > 1:
        yield "steps are inferred in some runs and told in others: they may not be the same steps"
    if any(report.run.status == "running" for report in everyone):
        yield "a run still goes on: this is what it was so far"
    if not have_one_host(everyone[:1], everyone[1:]):
        yield "the runs were on different hosts: a difference between the machines is in the numbers"
    if any((neighbours_share_of(report) or 0.0) >= _FULL for report in everyone):
        who = "others, or the runs' own loader workers," if any(map(has_workers, everyone)) else "others"
        yield f"{who} kept the host busy: only repeats that take turns show much there"
    lost = sum(row.lost_frames for report in everyone for row in report.coverage.ranks)
    if lost > 0:
        yield f"{units.count(lost)} frames of these runs were lost before they could be read"


def _notes_on_sides(rows: Sequence[PhaseChange]) -> Iterator[str]:
    for side in ("before", "after"):
        names = ", ".join(label(row.phase) for row in rows if row.only == side)
        if names:
            yield f"{names}: only {side}; what did the same without that name stands in another row"


def _differ(
    what: str, everyone: Sequence[Report], of: Callable[[Report], Any], say: Callable[[Any], str]
) -> Optional[str]:
    found: dict[Any, Report] = {}
    for report in everyone:
        found.setdefault(of(report), report)
    said = " and ".join(f"{say(value)}{_in_run(report, everyone)}" for value, report in found.items())
    return f"other {what} ({said})" if len(found) > 1 else None


def _in_run(report: Report, everyone: Sequence[Report]) -> str:
    """Which run it was, where that cannot be told from the order."""
    return f" in {units.clean(report.run.name)[:_MAX_TEXT]}" if len(everyone) > _PAIR else ""


def _clock(report: Report) -> str:
    return report.step_time.clock


def _device_names(report: Report) -> str:
    return ", ".join(dict.fromkeys(units.clean(name)[:_MAX_TEXT] for name in report.system.devices))


def _device_kind(report: Report) -> str:
    """`cuda:0` and `cuda:1` are alike."""
    return units.clean(report.run.device).partition(":")[0][:_MAX_TEXT] or "cpu"


def _other_models(everyone: Sequence[Report]) -> Optional[str]:
    """Told by the number of parameters: a class may have another name. Summaries that do not know it decide nothing."""
    models = {report.run.model: _PARAMETERS.findall(report.run.model) for report in everyone}
    if "" in models or len({tuple(sizes) for sizes in models.values()}) == 1:
        return None
    return f"other models ({' and '.join(units.clean(model)[:_MAX_TEXT] for model in models)})"


def _other_batch(everyone: Sequence[Report], limits: CompareLimits) -> Optional[str]:
    """Told by the samples a step; where they are not counted, by the loader's batch size. Then by the tokens."""
    for rate, what in (("samples_per_s", "samples"), ("tokens_per_s", "tokens")):
        counts = [_a_step(report, rate) for report in everyone]
        known = [count for count in counts if count is not None]
        if what == "samples" and _have_short_batches(everyone, counts, limits):
            continue
        if len(known) == len(counts) and max(known) > min(known) * (1 + limits.batch_share):
            ends = [(count, everyone[known.index(count)]) for count in (min(known), max(known))]
            said = " and ".join(f"{_plain(count)}{_in_run(report, everyone)}" for count, report in ends)
            return f"other batches ({said} {what} a step)"
        if what == "samples" and len(known) < len(counts):
            sizes = dict.fromkeys(report.loader.get("batch_size") for report in everyone)
            if len(sizes) > 1 and all(isinstance(size, int) for size in sizes):
                return f"other batches ({' and '.join(map(str, sizes))} samples)"
    return None


def _have_short_batches(everyone: Sequence[Report], counts: Sequence[Optional[float]], limits: CompareLimits) -> bool:
    """Whether all loaders make batches of one size, and only the last ones of short epochs hold less."""
    sizes = {report.loader.get("batch_size") for report in everyone}
    size = sizes.pop() if len(sizes) == 1 else None
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return False
    for report, count in zip(everyone, counts):
        most = (
            size * max(1, report.run.world_size) * max(1.0, (report.run.micro_batches or 0) / max(1, report.run.steps))
        )
        if count is None or not limits.short_batch_share * most <= count <= (1 + _WHOLE_WITHIN) * most:
            return False
    return True


def _plain(value: float) -> str:
    """A number of samples, or of cores: `32`, `31.5`."""
    return units.count(round(value)) if abs(value - round(value)) < _WHOLE_WITHIN * value else units.significant(value)


def _a_step(report: Report, rate: str) -> Optional[float]:
    value, steps = getattr(report.throughput, rate), report.throughput.steps_per_s
    return value / steps if value is not None and value > 0 and steps is not None and steps > 0 else None


def _other_updates(everyone: Sequence[Report]) -> Optional[str]:
    found = [
        round(report.run.micro_batches / report.run.steps)
        for report in everyone
        if report.run.micro_batches and report.run.steps
    ]
    if len(found) < len(everyone) or len(set(found)) == 1 or 0 in found:
        return None
    return f"other accumulation ({' and '.join(map(str, dict.fromkeys(found)))} micro-batches a step)"


def _started(report: Report) -> Optional[float]:
    try:
        return datetime.fromisoformat(report.run.started_at.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _said(value: object) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, float):
        return _plain(value)
    return units.clean(str(value))[:_MAX_TEXT]
