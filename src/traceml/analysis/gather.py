"""Gathers what the store holds of a run, or of a range of its steps, into Facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Iterable, Optional, Sequence, Union

from traceml.analysis.chunks import NameRegion, chunks_of, with_walls
from traceml.analysis.core_waits import core_wait_share
from traceml.analysis.facts import MOST_STEPS, DeviceFacts, Ending, Facts, RankFacts, is_absent_when_unseen
from traceml.analysis.ledger_facts import ledger_facts
from traceml.analysis.outlying import outlying, steps_of
from traceml.analysis.surroundings import memory_of, system_of
from traceml.analysis.warmup import Warmup, find_warmup
from traceml.schema.distribution import Distribution, bucket_of
from traceml.schema.known import sum_known
from traceml.schema.phases import INPUT, PHASES, REGION_PREFIX
from traceml.schema.records import (
    HALTED,
    Block,
    DeviceSample,
    Event,
    HostSample,
    LoaderInfo,
    MemoryReading,
    ProcessSample,
    RankState,
    Segment,
    StepRecord,
)
from traceml.schema.syncs import LedgerState, UnitSums

Piece = Union[StepRecord, Block]


@dataclass(frozen=True)
class RankWindow:
    """One rank's steps in a range: every one in exactly one piece, in step order."""

    state: RankState
    pieces: tuple[Piece, ...]


def facts_of(  # noqa: PLR0913 - the kinds of records there are, each by its keyword
    windows: Sequence[RankWindow],
    *,
    segments: Sequence[Segment] = (),
    events: Sequence[Event] = (),
    memory: Sequence[MemoryReading] = (),
    processes: Sequence[ProcessSample] = (),
    host: Sequence[HostSample] = (),
    devices: Sequence[DeviceSample] = (),
    clock: Optional[str] = None,
    world_size: int = 1,
    inferred: bool = False,
    unsure: str = "",
    ending: Optional[Ending] = None,
    units: Sequence[UnitSums] = (),
    ledger: Optional[LedgerState] = None,
) -> Facts:
    """Turns records into the one input of every rule.

    Args:
        windows: One a rank.
        segments: Startup and tail of any rank.
        events: Handed on as they are.
        memory: Allocator or process readings of any rank, in time order.
        processes: Samples of the ranks' processes, in time order.
        host: Samples of the host, in time order.
        devices: Samples of the run's own accelerators, in time order.
        clock: "host" or "device": the clock of the phases. None: the device's, if most steady steps of every rank have
            it, else the host's.
        world_size: The number of ranks the run has.
        inferred: Whether steps were inferred, without `trace_step`.
        unsure: Why inferred steps cannot be trusted; empty when they can.
        ending: How the run ended, or that it goes on; None is not known.
        units: What the ranks did between two syncs, in order.
        ledger: How far that came, and what could not be aligned; None: nobody has tried.

    Returns:
        Facts without warm-up and failed steps in their distributions, with at most 64 chunks a rank. On the device's
        clock the steady steps without device times are left out of them, too.
    """
    notes: list[str] = []
    ranks = tuple(_rank_facts(window, segments, processes, notes) for window in windows)
    if clock is None:
        clock = _clock_of(ranks, notes)
        ranks = tuple(map(_on_device, ranks)) if clock == "device" else ranks
    steady_from = max((rank.first_steady_step for rank in ranks), default=0)
    steps = [piece for window in windows for piece in (window.pieces[:1] + window.pieces[-1:])]
    facts = Facts(
        clock=clock,
        ranks=ranks,
        world_size=world_size,
        inferred=inferred,
        unsure=unsure,
        first_step=min((_first(piece) for piece in steps), default=None),
        last_step=max((_last(piece) for piece in steps), default=None),
        loader=_training_loader(windows),
        system=system_of(host=host, processes=processes, devices=devices, steady_ns=_steady_ns(windows)),
        memory=memory_of(memory, processes=processes, host=host),
        events=tuple(events),
        notes=tuple(notes),
        ending=ending or Ending(),
        ledger=ledger_facts(units, ledger, steady_from=steady_from),
    )
    odd = outlying([unit for unit in units if unit.last_step >= steady_from])
    if not odd:
        return facts
    calm = facts_of(
        [_without(window, odd) for window in windows],
        segments=segments,
        events=events,
        memory=memory,
        processes=processes,
        host=host,
        devices=devices,
        clock=clock,
        world_size=world_size,
        inferred=inferred,
        unsure=unsure,
        ending=ending,
        units=[unit for unit in units if unit not in odd],
        ledger=ledger,
    )
    return replace(facts, calm=calm, outliers=tuple((unit.last_step, unit.lost.maximum) for unit in odd))


def _without(window: RankWindow, odd: Sequence[UnitSums]) -> RankWindow:
    """The window without the pieces that hold a step of these units."""
    spans = [steps_of(unit) for unit in odd]
    kept = [
        piece
        for piece in window.pieces
        if not any(_first(piece) < span.stop and _last(piece) >= span.start for span in spans)
    ]
    return replace(window, pieces=tuple(kept))


def _rank_facts(
    window: RankWindow, segments: Sequence[Segment], processes: Sequence[ProcessSample], notes: list[str]
) -> RankFacts:
    state, rank = window.state, window.state.identity.rank
    warmup = _warmup(window)
    if warmup.is_cut:
        notes.append(
            f"rank {rank}: the warm-up may reach beyond step {warmup.first_steady_step - 1:,}, "
            "where steps are only kept in sums: they are counted in"
        )
    blocks = [piece for piece in window.pieces if isinstance(piece, Block)]
    records = [piece for piece in window.pieces if isinstance(piece, StepRecord)]
    kept = [record for record in records if record.failed_in is None]
    warm = [record for record in kept if warmup.holds(record)]
    steady = [record for record in kept if not warmup.holds(record)] if warm else kept
    num_steps = len(records) + sum(block.num_steps + block.num_failed + block.num_halted for block in blocks)
    num_halted = sum(record.failed_in == HALTED for record in records) + sum(block.num_halted for block in blocks)
    num_failed = num_steps - num_halted - len(kept) - sum(block.num_steps for block in blocks)

    def name_region(number: int) -> str:
        return REGION_PREFIX + state.regions.get(number, f"{number}")

    all_pieces: Sequence[Piece] = window.pieces
    steady_pieces: Sequence[Piece] = [p for p in all_pieces if isinstance(p, Block) or _is_steady(p, warmup)]
    return RankFacts(
        state=state,
        num_steps=num_steps,
        num_warmup=len(warm),
        num_failed=num_failed,
        num_steady=num_steps - len(warm) - num_failed - num_halted,
        warmup_ns=sum(record.period_ns for record in warm),
        period=_merged((r.period_ns for r in steady), (block.period for block in blocks)),
        phases=_phases(window.state, records, steady, blocks),
        epoch_start=_merged((r.epoch_start_ns for r in steady if r.epoch_start_ns), (b.epoch_start for b in blocks)),
        chunks=chunks_of(steady_pieces, name_region),
        num_micro_batches=sum(piece.num_micro_batches for piece in steady_pieces),
        num_optimizer_steps=sum(piece.num_optimizer_steps for piece in steady_pieces),
        num_samples=sum_known(piece.num_samples for piece in steady_pieces),
        num_tokens=sum_known(piece.num_tokens for piece in steady_pieces),
        all_micro_batches=sum(piece.num_micro_batches for piece in all_pieces),
        all_optimizer_steps=sum(piece.num_optimizer_steps for piece in all_pieces),
        all_samples=sum_known(piece.num_samples for piece in all_pieces),
        all_tokens=sum_known(piece.num_tokens for piece in all_pieces),
        startup_ns=_segment_ns(segments, rank, "startup"),
        tail_ns=_segment_ns(segments, rank, "tail"),
        first_steady_step=warmup.first_steady_step,
        device=_device_facts(window, steady_pieces, name_region),
        num_halted=num_halted,
        core_wait_share=core_wait_share(
            [sample for sample in processes if sample.rank == rank],
            steady_ns=(_start_ns(steady_pieces[0]), steady_pieces[-1].end_ns) if steady_pieces else None,
            start=ProcessSample(rank, state.identity.process_start_ns, run_delay_ns=state.identity.waited_ns),
        ),
    )


def _device_facts(window: RankWindow, steady: Sequence[Piece], name_region: NameRegion) -> Optional[DeviceFacts]:
    """The same of the device's clock; None where no steady step has it."""
    timed = [own for own in map(_on_clock, steady) if own is not None]
    if not timed:
        return None
    records = [piece for piece in timed if isinstance(piece, StepRecord)]
    blocks = [piece for piece in timed if isinstance(piece, Block)]
    seen = [own for own in map(_on_clock, window.pieces) if isinstance(own, StepRecord)]
    bounds = [step.device.run_ahead_ns for step in records if step.device is not None]
    kept = [block.device for block in blocks if block.device is not None]
    return DeviceFacts(
        num_steps=sum(piece.num_steps if isinstance(piece, Block) else 1 for piece in timed),
        period=_merged((r.period_ns for r in records), (b.period for b in blocks)),
        phases=_phases(window.state, seen, records, blocks),
        epoch_start=_merged((r.epoch_start_ns for r in records if r.epoch_start_ns), (b.epoch_start for b in blocks)),
        chunks=with_walls(chunks_of(timed, name_region), [p for p in steady if p.device is not None]),
        run_ahead_low=_merged((low for low, _ in bounds if low is not None), (b.run_ahead_low for b in kept)),
        run_ahead_high=_merged((high for _, high in bounds if high is not None), (b.run_ahead_high for b in kept)),
    )


def _on_clock(piece: Piece) -> Optional[Piece]:
    """A piece with the device's times in the place of the host's; None where it has none."""
    if isinstance(piece, Block):
        own = piece.device
        if own is None:
            return None
        return replace(
            piece, num_steps=own.period.count, period=own.period, phases=own.phases, epoch_start=own.epoch_start
        )
    times = piece.device
    if times is None:
        return None
    return piece._replace(
        period_ns=times.period_ns,
        phase_ns=times.phase_ns,
        region_ns=times.region_ns,
        epoch_start_ns=times.epoch_start_ns,
    )


def _clock_of(ranks: Sequence[RankFacts], notes: list[str]) -> str:
    """The clock that all ranks can be judged on; a note where the device's is there and does not suffice."""
    steady = [rank for rank in ranks if rank.num_steady]
    timed = [rank for rank in steady if rank.device is not None]
    short = [rank for rank in steady if rank.device is None or rank.device.num_steps < MOST_STEPS * rank.num_steady]
    if timed and short:
        rank = short[0]
        number = 0 if rank.device is None else rank.device.num_steps
        notes.append(
            f"rank {rank.state.identity.rank}: only {number:,} of {rank.num_steady:,} steady steps have the device's "
            "clock: the shares are those of the host's"
        )
    return "device" if timed and not short else "host"


def _on_device(rank: RankFacts) -> RankFacts:
    return rank if rank.device is None else rank.on_device()


def _steady_ns(windows: Sequence[RankWindow]) -> Optional[tuple[int, int]]:
    """From the first steady step's begin to the last one's end, over all ranks; None without any."""
    starts, ends = [], []
    for window in windows:
        warmup = _warmup(window)
        for piece in window.pieces:
            if isinstance(piece, Block) or _is_steady(piece, warmup):
                starts.append(_start_ns(piece))
                ends.append(piece.end_ns)
    return (min(starts), max(ends)) if starts else None


def _warmup(window: RankWindow) -> Warmup:
    """The warm-up, where the range begins with the run; elsewhere none."""
    begins = window.state.first_step or 1
    starts_the_run = bool(window.pieces) and _first(window.pieces[0]) <= begins
    return find_warmup(window.pieces) if starts_the_run else Warmup(0)


def _is_steady(record: StepRecord, warmup: Warmup) -> bool:
    return record.failed_in is None and not warmup.holds(record)


def _phases(
    state: RankState, records: Sequence[StepRecord], steady: Sequence[StepRecord], blocks: Sequence[Block]
) -> dict[str, Distribution]:
    """Every phase that was seen, or whose absence is a zero, over the steady steps; the fixed ones first.

    Args:
        state: The rank.
        records: All its raw steps: a phase that is in any of them was seen.
        steady: The steady ones of them.
        blocks: Coarser ones.
    """
    seen = {phase for block in blocks for phase, spent in block.phases.items() if spent.count}
    seen |= {phase for phase, column in zip(PHASES, zip(*(r.phase_ns for r in records))) if _any_known(column)}
    if state.training_loader is not None:
        seen.add(INPUT)  # a fetch somewhere in the run, if not in this range
    columns = dict(zip(PHASES, zip(*(r.phase_ns for r in steady))))
    found = {
        phase: _merged(
            (ns for ns in columns.get(phase, ()) if ns is not None),
            (block.phases[phase] for block in blocks if phase in block.phases),
        )
        for phase in PHASES
        if phase in seen or not is_absent_when_unseen(phase, state.watched)
    }
    for name, values in _region_values(records, steady, state).items():
        found[name] = Distribution.of(values)
    for block in blocks:
        for name, spent in block.phases.items():
            if name.startswith(REGION_PREFIX):
                found.setdefault(name, Distribution()).merge(spent)
    return found


def _any_known(values: Iterable[Optional[int]]) -> bool:
    """Whether a value is not None."""
    return any(value is not None for value in values)


def _region_values(
    records: Sequence[StepRecord], steady: Sequence[StepRecord], state: RankState
) -> dict[str, list[int]]:
    """The ns of each region in the steady steps that entered it; a region seen in other steps only has no values."""
    values: dict[str, list[int]] = {
        REGION_PREFIX + state.regions.get(number, f"{number}"): [] for r in records for number, _ in r.region_ns
    }
    for record in steady:
        in_step: dict[str, int] = {}
        for number, ns in record.region_ns:
            name = REGION_PREFIX + state.regions.get(number, f"{number}")
            in_step[name] = in_step.get(name, 0) + ns
        for name, ns in in_step.items():
            values[name].append(ns)
    return values


def _merged(values: Iterable[int], parts: Iterable[Distribution]) -> Distribution:
    """One distribution of values and of parts; in one pass, as there are thousands of each."""
    raw, kept = list(values), [part for part in parts if part.count]
    buckets = dict(Counter(map(bucket_of, raw)))
    for part in kept:
        for bucket, times in part.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + times
    return Distribution(
        count=len(raw) + sum(part.count for part in kept),
        total=sum(raw) + sum(part.total for part in kept),
        minimum=min((*raw, *(part.minimum for part in kept if part.minimum is not None)), default=None),
        maximum=max((*raw, *(part.maximum for part in kept if part.maximum is not None)), default=None),
        buckets=buckets,
    )


def _segment_ns(segments: Sequence[Segment], rank: int, kind: str) -> Optional[int]:
    return next((s.duration_ns for s in segments if s.rank == rank and s.kind == kind), None)


def _training_loader(windows: Sequence[RankWindow]) -> Optional[LoaderInfo]:
    """The training loader of the first rank that has one."""
    for window in windows:
        for loader in window.state.loaders:
            if loader.number == window.state.training_loader:
                return loader
    return None


def _start_ns(piece: Piece) -> int:
    return piece.start_ns if isinstance(piece, Block) else piece.end_ns - piece.period_ns


def _first(piece: Piece) -> int:
    return piece.first_step if isinstance(piece, Block) else piece.step


def _last(piece: Piece) -> int:
    return piece.last_step if isinstance(piece, Block) else piece.step
