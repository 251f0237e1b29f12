"""Builds the Report of a run, or of a range of its steps, from what the store holds and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Callable, Final, Iterator, Mapping, Optional, Protocol, Sequence

from traceml.analysis.gather import RankWindow, facts_of
from traceml.diagnosis.ground import undecided
from traceml.diagnosis.thresholds import LIMITS
from traceml.diagnosis.verdict import diagnose
from traceml.report.contract import (
    SCHEMA_VERSION,
    BlockInfo,
    Report,
    RunInfo,
    StepTimeInfo,
    ThroughputInfo,
)
from traceml.report.contract_attempts import AttemptInfo, DeathInfo
from traceml.report.coverage import coverage_of, fold
from traceml.report.ending import ending_of
from traceml.report.findings import findings_of, verdict_of
from traceml.report.live import age_s, live_of, newest_devices
from traceml.report.once import once
from traceml.report.own_cost import counts_batches, overhead_of
from traceml.report.rank_rows import ranks_of
from traceml.report.shares import columns, ms, period_of, phase_rows, rounded, run_ahead_of, spread
from traceml.report.surroundings import memory_info, process_info, system_info
from traceml.report.trim import trimmed
from traceml.schema import phases, units
from traceml.schema.current import Current
from traceml.schema.known import sum_known
from traceml.schema.model import in_words
from traceml.schema.struct import to_plain

if TYPE_CHECKING:
    from traceml.analysis.facts import Chunk, Ending, Facts, RankFacts
    from traceml.diagnosis.finding import Diagnosis
    from traceml.schema.attempts import Attempt
    from traceml.schema.records import (
        DeviceSample,
        Event,
        HostSample,
        LiveSlot,
        Manifest,
        MemoryReading,
        ProcessSample,
        RankState,
        RunEnd,
        Segment,
    )
    from traceml.schema.syncs import LedgerState, UnitSums

_NS_PER_S: Final = 1e9
_MAX_BLOCKS: Final = 64
_MAX_ATTEMPTS: Final = 8
_MAX_DEATHS: Final = 4
_SMALLEST_SHARE: Final = 0.001  # of a block's period; a smaller phase is left out of it


class Reader(Protocol):
    """What a report needs of a store; `store.reader.StoreReader` is one."""

    def states(self) -> list[RankState]: ...  # noqa: D102  # as the store documents them
    def segments(self) -> list[Segment]: ...  # noqa: D102
    def events(self) -> list[Event]: ...  # noqa: D102
    def memory(self) -> list[MemoryReading]: ...  # noqa: D102
    def processes(self) -> list[ProcessSample]: ...  # noqa: D102
    def host(self) -> list[HostSample]: ...  # noqa: D102
    def devices(self) -> list[DeviceSample]: ...  # noqa: D102
    def live(self) -> list[LiveSlot]: ...  # noqa: D102
    def notes(self) -> dict[str, str]: ...  # noqa: D102
    def end(self) -> Optional[RunEnd]: ...  # noqa: D102
    def attempts(self) -> list[Attempt]: ...  # noqa: D102
    def ledger(self) -> Optional[LedgerState]: ...  # noqa: D102
    def units(self, *, first: Optional[int] = None, last: Optional[int] = None) -> tuple[UnitSums, ...]: ...  # noqa: D102
    def window(self, rank: int, *, first: Optional[int] = None, last: Optional[int] = None) -> Any: ...  # noqa: D102


@dataclass(frozen=True)
class _Found:
    """Everything the report is made of."""

    manifest: Manifest
    facts: Facts
    states: tuple[RankState, ...]
    segments: tuple[Segment, ...]
    live: tuple[LiveSlot, ...]
    newest_ns: int  # when the newest data was taken
    end: Optional[RunEnd]
    now_wall: float
    now_ns: int
    is_running: bool
    folder: str
    is_whole: bool  # not a range of the steps
    attempts: tuple[Attempt, ...] = ()
    host: Optional[HostSample] = None  # the newest
    devices: tuple[DeviceSample, ...] = ()  # of each the newest


def build_report(
    reader: Reader,
    manifest: Manifest,
    *,
    window: Optional[tuple[int, int]] = None,
    now_wall: float,
    now_ns: int,
    is_running: bool = True,
    folder: str = "",
    notes: Sequence[str] = (),
) -> Report:
    """The report of a run, under 32 KB for 8 ranks.

    Args:
        reader: The run's store.
        manifest: What was known when it started.
        window: First and last step to speak of; None: the whole run.
        now_wall: Wall clock in seconds, for `reported_at`.
        now_ns: The records' clock, for how long a running run has taken.
        is_running: Whether the run's collector still lives; a run that has an end is not running whatever this says.
        folder: The run folder, as the card names it.
        notes: Sentences for `coverage.notes`: a folder that moved.

    Raises:
        RunError: What the reader raises.
    """
    end = reader.end()
    is_running = is_running and end is None
    states = tuple(sorted(reader.states(), key=lambda state: state.identity.rank))
    segments = tuple(reader.segments())
    host, devices = reader.host(), reader.devices()
    facts = _facts(
        reader, states, segments, window, host=host, devices=devices, ending=ending_of(end, is_running=is_running)
    )
    live = tuple(reader.live())
    taken_ns = [slot.read_ns for slot in live] + [sample.at_ns for sample in host[-1:]]
    found = _Found(
        manifest=manifest,
        facts=facts,
        states=states,
        segments=segments,
        live=live,
        newest_ns=max(taken_ns, default=manifest.created_ns),
        end=end,
        now_wall=now_wall,
        now_ns=now_ns,
        is_running=is_running,
        folder=folder,
        is_whole=window is None,
        attempts=tuple(reader.attempts()),
        host=host[-1] if host else None,
        devices=newest_devices(devices),
    )
    return trimmed(_report(found, diagnose(facts), (*reader.notes().values(), *notes)))


def _facts(
    reader: Reader,
    states: Sequence[RankState],
    segments: Sequence[Segment],
    window: Optional[tuple[int, int]],
    *,
    host: Sequence[HostSample],
    devices: Sequence[DeviceSample],
    ending: Ending,
) -> Facts:
    first, last = window or (None, None)
    windows = []
    for state in states:
        pieces = tuple(reader.window(state.identity.rank, first=first, last=last).pieces)
        windows.append(RankWindow(state, pieces))
    events = reader.events()
    if window is not None:
        events = [event for event in events if window[0] <= event.step <= window[1]]
    return facts_of(
        windows,
        segments=segments,
        events=events,
        memory=reader.memory(),
        processes=reader.processes(),
        host=host,
        devices=devices,
        world_size=max((state.identity.world_size for state in states), default=1),
        inferred=any(state.inferred for state in states),
        unsure=next((state.unsure for state in states if state.unsure), ""),
        ending=ending,
        units=reader.units(first=first, last=last),
        ledger=reader.ledger(),
    )


def _report(found: _Found, diagnosis: Diagnosis, notes: Sequence[str]) -> Report:
    facts = found.facts
    events, more_notes = fold(once(facts.events))
    return Report(
        schema_version=SCHEMA_VERSION,
        run=_run(found),
        verdict=verdict_of(diagnosis),
        step_time=_step_time(facts, diagnosis),
        step_memory=memory_info(facts, diagnosis),
        system=system_info(facts.system, diagnosis),
        process=process_info(facts),
        throughput=_throughput(found),
        coverage=coverage_of(
            facts,
            found.states,
            (*_of_ranks(facts), *notes, *more_notes),
            until_s={slot.rank: (slot.since_ns - found.manifest.created_ns) / _NS_PER_S for slot in found.live},
        ),
        events=events,
        overhead=overhead_of(found.states),
        loader=to_plain(facts.loader) if facts.loader else {},
        attempts=tuple(_attempt(attempt) for attempt in found.attempts[-_MAX_ATTEMPTS:]),
    )


def _of_ranks(facts: Facts) -> Iterator[str]:
    """What could not be said of the ranks, and of which steps."""
    reason = undecided(facts, LIMITS)
    if reason:
        yield f"who waits for whom is not decided: {reason}"
    if facts.ledger is not None and facts.ledger.num_without_partner:
        alone = units.count(facts.ledger.num_without_partner)
        yield f"{alone} steps are not in the comparison of the ranks: not every rank has them"


def _run(found: _Found) -> RunInfo:
    manifest, facts, end = found.manifest, found.facts, found.end
    rank = _spoken_of(facts)
    identity = found.states[0].identity if found.states else None
    return RunInfo(
        name=manifest.name,
        status="running" if found.is_running else end.status if end else "unknown",
        started_at=_iso(manifest.created_at),
        duration_s=round(_duration_ns(found) / _NS_PER_S, 3),
        startup_s=_seconds(rank.startup_ns if rank else None),
        tail_s=_seconds(rank.tail_ns if rank else None),
        steps=max((r.num_steps for r in facts.ranks), default=0),
        warmup_steps=rank.num_warmup if rank else 0,
        failed_steps=max((r.num_failed for r in facts.ranks), default=0),
        inferred=facts.inferred,
        world_size=facts.world_size,
        nodes=1,
        exit_code=end.exit_code if end else None,
        ended_by=end.ended_by if end else "unknown",
        traceml_version=manifest.traceml_version,
        run_id=manifest.run_id,
        script=manifest.script,
        folder=found.folder,
        hostname=manifest.hostname,
        python_version=identity.python_version if identity else manifest.python_version,
        torch_version=identity.torch_version if identity else "",
        device=identity.device if identity else "cpu",
        exception=end.exception if end else "",
        first_death=end.first_death if end else "",
        model=in_words(found.states[0].models) if found.states else "",
        total_steps=next((s.total_steps for s in found.states if s.total_steps), manifest.total_steps),
        micro_batches=rank.all_micro_batches if rank else None,
        optimizer_steps=rank.all_optimizer_steps if rank else None,
        warmup_s=_seconds(rank.warmup_ns if rank else None),
        first_step=facts.first_step,
        last_step=facts.last_step,
        user_step=max((s.user_step for s in found.states if s.user_step is not None), default=None),
        live=_live(found),
        data_age_s=age_s(found.now_ns, found.newest_ns) if found.is_running else None,
        halted_steps=max((r.num_halted for r in facts.ranks), default=0),
        restarts=len(found.attempts),
        reported_at=_iso(found.now_wall),
        compilations=_compilations(found.states, lambda state: state.num_compilations),
        recompilations=_compilations(found.states, lambda state: state.num_recompilations),
    )


def _attempt(attempt: Attempt) -> AttemptInfo:
    deaths = tuple(DeathInfo(death.rank, death.step, death.phase, death.how) for death in attempt.deaths[:_MAX_DEATHS])
    duration_s = round(max(0, attempt.ended_ns - attempt.started_ns) / _NS_PER_S, 3)
    return AttemptInfo(attempt.number, attempt.world_size, attempt.num_steps, duration_s, deaths, attempt.file)


def _compilations(states: Sequence[RankState], number_of: Callable[[RankState], int]) -> Optional[int]:
    """A sum over the ranks; None where none of them watches the compiler."""
    watching = [state for state in states if phases.COMPILE in state.watched]
    return sum(number_of(state) for state in watching) if watching else None


def _spoken_of(facts: Facts) -> Optional[RankFacts]:
    """The median rank; without steady steps the first that was heard."""
    return facts.median_rank or (facts.ranks[0] if facts.ranks else None)


def _iso(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, tz=timezone.utc).isoformat(timespec="seconds")


def _seconds(ns: Optional[int]) -> Optional[float]:
    return None if ns is None else round(ns / _NS_PER_S, 3)


def _duration_ns(found: _Found) -> int:
    """From the first process's start (the run's making, before one is known) to the last one's end, or to now."""
    starts = [segment.start_ns for segment in found.segments if segment.kind == "startup"]
    starts += [state.identity.process_start_ns for state in found.states] if not starts else []
    start_ns = min(starts, default=found.manifest.created_ns)
    ends = [segment.start_ns + segment.duration_ns for segment in found.segments if segment.kind == "tail"]
    if found.is_running:
        return max(0, found.now_ns - start_ns)
    if not ends:
        ends = [found.end.ended_ns] if found.end else [slot.read_ns for slot in found.live]
    return max(0, max(ends, default=start_ns) - start_ns)


def _live(found: _Found) -> Optional[Mapping[str, Any]]:
    if not found.is_running:
        return None
    current = Current(found.live, found.states, found.host, found.devices)
    return live_of(current, now_ns=found.now_ns, newest_ns=found.newest_ns)


def _step_time(facts: Facts, diagnosis: Diagnosis) -> StepTimeInfo:
    rank = facts.median_rank
    rows = phase_rows(rank)
    epoch_start = None
    if rank and rank.epoch_start.count:
        pct = round(100 * rank.epoch_start.total / rank.total_ns, 1) if rank.total_ns else None
        epoch_start = spread(rank.epoch_start, num_steps=rank.num_steady, pct=pct)
    return StepTimeInfo(
        diagnosis=diagnosis.step_time[0].diagnosis if diagnosis.step_time else "INSUFFICIENT_DATA",
        **columns(rows),
        period_ms=period_of(rank),
        clock=facts.clock,
        phases=rows,
        ranks=ranks_of(facts),
        findings=findings_of(diagnosis.step_time),
        blocks=tuple(_block(chunk) for chunk in rank.chunks[:_MAX_BLOCKS]) if rank else (),
        epoch_start=epoch_start,
        wall_period_ms=period_of(rank.wall if rank else None),
        run_ahead_ms=run_ahead_of(rank),
    )


def _block(chunk: Chunk) -> BlockInfo:
    floor = _SMALLEST_SHARE * chunk.period_mean_ns
    means = {name: ms(ns) or 0.0 for name, ns in chunk.phase_mean_ns.items() if ns >= floor and ns > 0}
    return BlockInfo(chunk.num_steps, ms(chunk.period_median_ns) or 0.0, means, ms(chunk.wall_median_ns))


def _throughput(found: _Found) -> ThroughputInfo:
    """Sums over the ranks: the steady samples of each by its training time; all samples by the run's wall time."""
    ranks = [(rank, _training_s(rank)) for rank in found.facts.ranks]
    spoken = found.facts.median_rank
    steps_s = _training_s(spoken) if spoken else 0.0
    duration_s = _duration_ns(found) / _NS_PER_S
    wall = sum_known([rank.all_samples for rank in found.facts.ranks])
    has_samples, has_tokens = counts_batches(found.states)
    return ThroughputInfo(
        samples_per_s=_rates(ranks, lambda rank: rank.num_samples) if has_samples else None,
        tokens_per_s=_rates(ranks, lambda rank: rank.num_tokens) if has_tokens else None,
        wall_samples_per_s=_rate(wall, duration_s) if found.is_whole and has_samples else None,
        steps_per_s=_rate(spoken.wall.num_steady, steps_s) if spoken and not found.facts.unsure else None,
    )


def _training_s(rank: RankFacts) -> float:
    wall = rank.wall
    other = (wall.phase_ns(phases.EVAL) or 0) + (wall.phase_ns(phases.CHECKPOINT) or 0)
    return (wall.total_ns - other) / _NS_PER_S


def _rates(
    ranks: Sequence[tuple[RankFacts, float]], number_of: Callable[[RankFacts], Optional[int]]
) -> Optional[float]:
    rates = sum_known([_rate(number_of(rank), time_s) for rank, time_s in ranks])
    return None if rates is None else rounded(rates)


def _rate(number: Optional[float], time_s: float) -> Optional[float]:
    return None if number is None or time_s <= 0 else rounded(number / time_s)
