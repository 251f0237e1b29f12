"""Makes the smallest true store, manifest and steps for reports, without a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional

from traceml.schema import phases
from traceml.schema.attempts import Attempt
from traceml.schema.records import (
    DeviceSample,
    Event,
    HostSample,
    LiveSlot,
    Manifest,
    MemoryReading,
    ProcessSample,
    RankIdentity,
    RankState,
    RunEnd,
    Segment,
    StepRecord,
)
from traceml.schema.syncs import LedgerState, UnitSums

MS = 1_000_000
SECOND = 1_000 * MS

MANIFEST = Manifest(
    schema_version=1,
    name="vit-small",
    run_id="0123456789abcdef",
    created_at=1_800_000_000.0,
    created_ns=0,
    ring_dir="/nowhere",
    script="train.py",
    arguments=(),
    cwd="/home/ada",
    started_by="traceml run",
    hostname="host",
    traceml_version="0.1.0",
    python_version="3.11.9",
)
COMPLETED = RunEnd(status="completed", ended_by="end", exit_code=0, ended_ns=20 * SECOND, ended_at=1_800_000_020.0)


def step_ms(step: int, *, rank: int = 0, num_samples: Optional[int] = None, **ms: float) -> StepRecord:
    """A step of the given phases in ms, the period being their sum; others are absent or 0 as the spec says."""
    given = {name: round(value * MS) for name, value in ms.items()}
    phase_ns = tuple(given.get(p, None if p in phases.ABSENT_WHEN_UNSEEN else 0) for p in phases.PHASES)
    period_ns = sum(given.values())
    return StepRecord(rank, step, step * period_ns, period_ns, phase_ns, num_samples=num_samples)


def state_of(rank: int = 0, *, world_size: int = 1) -> RankState:
    """A rank with the least identity."""
    return RankState(
        RankIdentity(rank=rank, local_rank=rank, world_size=world_size, pid=100 + rank, process_start_ns=0)
    )


@dataclass(frozen=True)
class Window:
    """As the store's."""

    pieces: tuple[StepRecord, ...]


@dataclass
class FakeStore:
    """Answers like a StoreReader, from literals."""

    steps: list[StepRecord] = field(default_factory=list)
    ranks: list[RankState] = field(default_factory=lambda: [state_of()])
    ended: Optional[RunEnd] = COMPLETED
    all_segments: list[Segment] = field(default_factory=list)
    all_events: list[Event] = field(default_factory=list)
    all_memory: list[MemoryReading] = field(default_factory=list)
    all_devices: list[DeviceSample] = field(default_factory=list)
    slots: list[LiveSlot] = field(default_factory=list)
    all_notes: dict[str, str] = field(default_factory=dict)
    all_processes: list[ProcessSample] = field(default_factory=list)
    all_host: list[HostSample] = field(default_factory=list)
    all_units: tuple[UnitSums, ...] = ()
    ledger_state: Optional[LedgerState] = None
    all_attempts: list[Attempt] = field(default_factory=list)

    def states(self) -> list[RankState]:
        """One a rank, with what its steps say."""
        found = []
        for state in self.ranks:
            numbers = [s.step for s in self.steps if s.rank == state.identity.rank]
            found.append(replace(state, first_step=min(numbers, default=None), last_step=max(numbers, default=None)))
        return found

    def segments(self) -> list[Segment]:
        """As given."""
        return self.all_segments

    def events(self) -> list[Event]:
        """As given."""
        return self.all_events

    def memory(self) -> list[MemoryReading]:
        """As given."""
        return self.all_memory

    def processes(self) -> list[ProcessSample]:
        """As given."""
        return self.all_processes

    def host(self) -> list[HostSample]:
        """As given."""
        return self.all_host

    def devices(self) -> list[DeviceSample]:
        """All."""
        return self.all_devices

    def live(self) -> list[LiveSlot]:
        """As given."""
        return self.slots

    def notes(self) -> dict[str, str]:
        """As given."""
        return self.all_notes

    def end(self) -> Optional[RunEnd]:
        """As given."""
        return self.ended

    def attempts(self) -> list[Attempt]:
        """As given."""
        return self.all_attempts

    def ledger(self) -> Optional[LedgerState]:
        """As given."""
        return self.ledger_state

    def units(self, *, first: Optional[int] = None, last: Optional[int] = None) -> tuple[UnitSums, ...]:
        """Those that end in a range of steps."""
        low, high = first or 0, last if last is not None else 1 << 62
        return tuple(unit for unit in self.all_units if low <= unit.last_step <= high)

    def window(self, rank: int, *, first: Optional[int] = None, last: Optional[int] = None) -> Window:
        """The steps of a rank in a range."""
        low, high = first or 0, last if last is not None else 1 << 62
        return Window(tuple(s for s in self.steps if s.rank == rank and low <= s.step <= high))
