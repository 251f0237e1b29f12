"""Makes the smallest true records, so that a test says only what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

from traceml.analysis.gather import RankWindow, facts_of
from traceml.schema.distribution import Distribution
from traceml.schema.phases import BETWEEN_STEPS, IN_STEP, PHASES, REGION_PREFIX
from traceml.schema.records import Block, DeviceTimes, HostSample, LoaderInfo, RankIdentity, RankState, StepRecord

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts

NS_PER_MS = 1_000_000
Piece = Union[StepRecord, Block]


def step_ms(
    *,
    step: int = 1,
    rank: int = 0,
    epoch_start: float = 0.0,
    regions: Optional[Mapping[int, float]] = None,
    failed_in: Optional[str] = None,
    num_micro_batches: int = 1,
    num_samples: Optional[int] = None,
    **phases: float,
) -> StepRecord:
    """A step whose phases last as many ms as told, and whose period is their sum.

    A phase that is not named has no edge; the rests are 0. `regions` is keyed by the region's number. Give
    `facts_of_steps` several of these, numbered or not.
    """
    assert set(phases) <= set(PHASES), sorted(phases)
    phase_ns = tuple(
        round(phases[name] * NS_PER_MS) if name in phases else (0 if name in (IN_STEP, BETWEEN_STEPS) else None)
        for name in PHASES
    )
    region_ns = tuple((number, round(ms * NS_PER_MS)) for number, ms in sorted((regions or {}).items()))
    period_ns = sum(ns or 0 for ns in phase_ns) + sum(ns for _, ns in region_ns)
    return StepRecord(
        rank=rank,
        step=step,
        end_ns=0,
        period_ns=period_ns,
        phase_ns=phase_ns,
        region_ns=region_ns,
        epoch_start_ns=round(epoch_start * NS_PER_MS),
        num_micro_batches=num_micro_batches,
        num_optimizer_steps=1,
        num_samples=num_samples,
        failed_in=failed_in,
    )


def timed(
    record: StepRecord,
    *,
    run_ahead: tuple[Optional[float], Optional[float]] = (0.0, None),
    epoch_start: float = 0.0,
    regions: Optional[Mapping[int, float]] = None,
    **phases: float,
) -> StepRecord:
    """The step with these times (ms) on the device's clock; `run_ahead` is a lower and an upper bound."""
    own = step_ms(
        step=record.step,
        rank=record.rank,
        num_micro_batches=1,
        regions=regions,
        epoch_start=epoch_start,
        failed_in=None,
        num_samples=None,
        **phases,
    )
    low, high = (None if ms is None else round(ms * NS_PER_MS) for ms in run_ahead)
    times = DeviceTimes(own.period_ns, own.phase_ns, own.region_ns, own.epoch_start_ns, (low, high))
    return record._replace(device=times)


def numbered(steps: Sequence[StepRecord], *, first: int = 1) -> tuple[StepRecord, ...]:
    """The same steps one after another, counted from `first`."""
    end_ns, found = 0, []
    for number, record in enumerate(steps, start=first):
        end_ns += record.period_ns
        found.append(record._replace(step=number, end_ns=end_ns))
    return tuple(found)


def block_of(steps: Sequence[StepRecord], *, regions: Optional[Mapping[int, str]] = None) -> Block:
    """The block that keeps these numbered steps."""
    kept = [record for record in steps if record.failed_in is None]
    phases: dict[str, Distribution] = {}
    for record in kept:
        named = [(name, ns) for name, ns in zip(PHASES, record.phase_ns) if ns is not None]
        named += [(REGION_PREFIX + (regions or {}).get(number, f"{number}"), ns) for number, ns in record.region_ns]
        for name, ns in named:
            phases.setdefault(name, Distribution()).add(ns)
    samples = [record.num_samples for record in kept if record.num_samples is not None]
    return Block(
        rank=steps[0].rank,
        level=1,
        first_step=steps[0].step,
        last_step=steps[-1].step,
        num_steps=len(kept),
        num_failed=len(steps) - len(kept),
        start_ns=steps[0].end_ns - steps[0].period_ns,
        end_ns=steps[-1].end_ns,
        period=Distribution.of(record.period_ns for record in kept),
        phases=phases,
        epoch_start=Distribution.of(record.epoch_start_ns for record in kept if record.epoch_start_ns),
        num_micro_batches=sum(record.num_micro_batches for record in kept),
        num_optimizer_steps=sum(record.num_optimizer_steps for record in kept),
        num_samples=sum(samples) if samples else None,
        num_tokens=None,
    )


def rank_state(
    *,
    rank: int = 0,
    world_size: int = 1,
    device: str = "cpu",
    loader: Optional[LoaderInfo] = None,
    regions: Optional[Mapping[int, str]] = None,
    watched: tuple[str, ...] = (),
    first_step: Optional[int] = 1,
) -> RankState:
    """A rank that trains, with its training loader when one is given."""
    return RankState(
        identity=RankIdentity(
            rank=rank, local_rank=rank, world_size=world_size, pid=100 + rank, process_start_ns=0, device=device
        ),
        first_step=first_step,
        regions=regions or {},
        loaders=() if loader is None else (loader,),
        training_loader=None if loader is None else loader.number,
        watched=watched,
    )


def facts_of_steps(steps: Sequence[Piece], *, state: Optional[RankState] = None, **surroundings: Any) -> Facts:
    """Facts of one rank's steps, which are numbered from 1 on when all are raw.

    Args:
        steps: Raw steps, or raw steps and blocks that are numbered already.
        state: The rank; without one, a rank on the CPU with a loader when a step has input.
        surroundings: Handed on to `facts_of`.
    """
    raw = [piece for piece in steps if isinstance(piece, StepRecord)]
    pieces: tuple[Piece, ...] = numbered(raw) if len(raw) == len(steps) else tuple(steps)
    return facts_of([RankWindow(state or rank_state(), pieces)], **surroundings)


def loader_info(num_workers: Optional[int] = 0, **settings: Any) -> LoaderInfo:
    """A DataLoader with these settings, batch 64 when not told."""
    return replace(LoaderInfo(number=0, num_workers=num_workers, batch_size=64), **settings)


def host_samples(number: int = 10, **values: Any) -> tuple[HostSample, ...]:
    """That many samples of the host, all with the same values."""
    return tuple(HostSample(at_ns=index * 1_000_000_000, **values) for index in range(number))
