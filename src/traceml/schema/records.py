"""Defines the records that travel through the house: steps, segments, levels, events, samples, identities.

Times are nanoseconds of CLOCK_MONOTONIC (as Python's `time.perf_counter` on Linux); sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Mapping, NamedTuple, Optional

from traceml.schema.bill import Bill, Shed
from traceml.schema.distribution import Distribution
from traceml.schema.model import ModelInfo
from traceml.schema.syncs import SyncCut

#: What stands in `failed_in` of a step in which the process was stopped or traced: it is left out like a failed one.
HALTED: Final = "halted"


class DeviceTimes(NamedTuple):
    """A step on the device's clock: from the event at the end of the step before to the one at its own end, divided.

    `phase_ns` and `region_ns` are as in `StepRecord`, and add up to `period_ns` exactly. Input is the wait that the
    device had no work left for. `run_ahead_ns` is how long after the host the device came to the step's end: a lower
    and an upper bound, None where nothing bounds it.
    """

    period_ns: int
    phase_ns: tuple[Optional[int], ...]
    region_ns: tuple[tuple[int, int], ...] = ()
    epoch_start_ns: int = 0  # part of input
    run_ahead_ns: tuple[Optional[int], Optional[int]] = (None, None)


class StepRecord(NamedTuple):
    """One finished step of one rank: its wall period, divided.

    `phase_ns` has one entry per name in `phases.PHASES`: None where no edge of that phase fell into this step. With
    `region_ns` it adds up to `period_ns` exactly. `step` counts from 1.
    """

    rank: int
    step: int
    end_ns: int
    period_ns: int
    phase_ns: tuple[Optional[int], ...]
    region_ns: tuple[tuple[int, int], ...] = ()  # (region id, ns), ascending ids
    epoch_start_ns: int = 0  # part of input: starting an iterator, and its first fetch
    num_micro_batches: int = 0
    num_optimizer_steps: int = 0
    num_samples: Optional[int] = None
    num_tokens: Optional[int] = None
    user_step: Optional[int] = None
    failed_in: Optional[str] = None  # the phase that was open when the step raised, or HALTED; None: neither
    device: Optional[DeviceTimes] = None  # None: without the device's clock, or its events were lost
    sync: Optional[SyncCut] = None  # None: it waited for no other rank


@dataclass(frozen=True)
class Segment:
    """Time outside the steps: `startup` before the first one's own fetch, `tail` after the last."""

    rank: int
    kind: str  # "startup" | "tail"
    start_ns: int
    duration_ns: int
    phase_ns: tuple[Optional[int], ...]
    region_ns: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class DeviceBlock:
    """The steps of a block that have the device's clock: `period.count` of them; `phases` as in `Block`."""

    period: Distribution
    phases: Mapping[str, Distribution]
    epoch_start: Distribution = field(default_factory=Distribution)
    run_ahead_low: Distribution = field(default_factory=Distribution)  # of the steps where a bound is known
    run_ahead_high: Distribution = field(default_factory=Distribution)


@dataclass(frozen=True)
class Block:
    """What a coarser level keeps of consecutive steps of one rank; failed and halted steps are only counted.

    `phases` is keyed by phase name (`region:<name>` too); a phase's count is that of the steps that had an edge of it.
    """

    rank: int
    level: int
    first_step: int
    last_step: int
    num_steps: int  # measured in: without failed and halted ones
    num_failed: int
    start_ns: int
    end_ns: int
    period: Distribution
    phases: Mapping[str, Distribution]
    epoch_start: Distribution
    num_micro_batches: int
    num_optimizer_steps: int
    num_samples: Optional[int]
    num_tokens: Optional[int]
    num_halted: int = 0
    device: Optional[DeviceBlock] = None  # None: no step of it has the device's clock


@dataclass(frozen=True)
class Event:
    """Something worth a line: an evaluation, a checkpoint, a spike, a lost ring, an epoch's start."""

    kind: str
    rank: int
    step: int
    at_ns: int
    duration_ns: Optional[int] = None
    count: int = 1
    text: str = ""


@dataclass(frozen=True)
class LoaderInfo:
    """A DataLoader's own settings, as the advice needs them; None is not known."""

    number: int
    num_workers: Optional[int] = None
    batch_size: Optional[int] = None
    num_samples: Optional[int] = None  # of one epoch
    drop_last: Optional[bool] = None
    pin_memory: Optional[bool] = None
    persistent_workers: Optional[bool] = None
    prefetch_factor: Optional[int] = None
    dataset: str = ""
    is_iterable: Optional[bool] = None  # an IterableDataset: each worker runs all of it, unless it shards itself
    has_own_sampler: Optional[bool] = None  # a sampler or batch sampler of the script's: it runs in the main process
    usual_samples: Optional[int] = None  # of a batch that is not looked into, where no batch size is said


@dataclass(frozen=True)
class RankIdentity:
    """Who writes a ring."""

    rank: int
    local_rank: int
    world_size: int
    pid: int
    process_start_ns: int  # on the records' clock
    hostname: str = ""
    torch_version: str = ""
    python_version: str = ""
    device: str = "cpu"  # "cuda:1" as soon as it is known which
    attempt: int = 0
    visible_devices: Optional[str] = None  # its CUDA_VISIBLE_DEVICES; None: not set
    device_order: str = ""  # its CUDA_DEVICE_ORDER
    device_uuid: str = ""  # as torch knows it: without "GPU-" or "MIG-" before it
    waited_ns: int = 0  # by its start its main thread had waited for a core so long: a process may hold several runs


@dataclass(frozen=True)
class MemoryReading:
    """What a rank's allocator, or its process, holds at a moment. Sizes in bytes, None is not known."""

    rank: int
    at_ns: int
    step: int
    source: str  # "cuda" | "mps" | "rss"
    allocated_bytes: int
    reserved_bytes: Optional[int] = None
    peak_bytes: Optional[int] = None
    capacity_bytes: Optional[int] = None


@dataclass(frozen=True)
class ProcessSample:
    """One rank's process, seen from outside. `cpu_percent` is of one core.

    `run_delay_ns` is how long its main thread was ready to run and waited for a core, since the process began.
    """

    rank: int
    at_ns: int
    rss_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None
    num_threads: Optional[int] = None
    read_bytes: Optional[int] = None
    write_bytes: Optional[int] = None
    run_delay_ns: Optional[int] = None  # Linux only


@dataclass(frozen=True)
class HostSample:
    """The host, within the run's cgroup, at a moment. `cpu_percent` is of all allowed cores."""

    at_ns: int
    num_cores: Optional[float] = None  # allowed: affinity and cgroup quota
    cpu_percent: Optional[float] = None
    num_runnable: Optional[float] = None
    throttled: Optional[bool] = None  # by the cgroup, since the sample before
    memory_bytes: Optional[int] = None
    memory_limit_bytes: Optional[int] = None


@dataclass(frozen=True)
class DeviceSample:
    """One of the run's own accelerators at a moment."""

    at_ns: int
    uuid: str
    name: str = ""
    busy_percent: Optional[float] = None
    memory_bytes: Optional[int] = None
    memory_limit_bytes: Optional[int] = None
    temperature_c: Optional[float] = None
    power_w: Optional[float] = None
    throttle_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class LiveSlot:
    """What a rank is doing now: its open phase, since when, in which step (the one that is being measured)."""

    rank: int
    step: int
    phase: str
    since_ns: int
    read_ns: int
    alive: bool
    halted: str = ""  # "stopped" | "traced" at this moment
    stall: str = ""  # the others wait for it too long: a kind of `stalls`
    told: str = ""  # and that in words
    by_script: bool = False  # it waits in a barrier of the script's own, and not for gradients or parameters


@dataclass(frozen=True)
class RankEnd:
    """How a rank's recording ended: 'end', 'exception', 'shutdown', 'trace-max-steps'; None: it could not say."""

    rank: int
    how: Optional[str]
    exception: str = ""
    at_ns: Optional[int] = None


@dataclass(frozen=True)
class RankState:
    """A rank as the store knows it."""

    identity: RankIdentity
    first_step: Optional[int] = None
    last_step: Optional[int] = None
    num_failed: int = 0
    num_lost_edges: int = 0
    num_lost_messages: int = 0
    num_lost_steps: int = 0
    regions: Mapping[int, str] = field(default_factory=dict)
    loaders: tuple[LoaderInfo, ...] = ()
    training_loader: Optional[int] = None  # LoaderInfo.number
    faults: tuple[Fault, ...] = ()  # our own, the newest of each hook
    watched: tuple[str, ...] = ()  # phases whose hooks are installed
    unwatched: Mapping[str, str] = field(default_factory=dict)  # phases that cannot be seen here, with the reason
    total_steps: Optional[int] = None
    user_step: Optional[int] = None  # the newest trace_step(step=)
    end: Optional[RankEnd] = None
    inferred: bool = False  # steps were found without trace_step
    unsure: str = ""  # why those cannot be trusted, with the counts; empty: they can
    num_compilations: int = 0
    num_recompilations: int = 0
    clock: str = "host"  # "device" as soon as events were recorded
    clock_note: str = ""  # why not, as the recorder says it
    num_lost_events: int = 0  # device events that never resolved, or were taken while a graph was captured
    num_other_events: int = 0  # device events on another device than the one the step ended on
    unrecorded: Optional[Unrecorded] = None
    num_halted: int = 0  # steps that are left out: the process was stopped or traced
    bill: Optional[Bill] = None  # what the recorder itself cost
    shed: tuple[Shed, ...] = ()  # what it gave up because of that
    models: tuple[ModelInfo, ...] = ()  # the traced ones, at most 8


@dataclass(frozen=True)
class Halt:
    """The process was stopped (SIGSTOP, Ctrl-Z), or a debugger had it. Two with the same beginning are one."""

    since_ns: int
    until_ns: Optional[int]  # None: it still is
    why: str  # "stopped" | "traced"


@dataclass(frozen=True)
class Unrecorded:
    """Steps so far that were entered and not recorded, because another one was open."""

    in_threads: int = 0  # in another thread
    overlapping: int = 0  # in the same one, and left after the other one: another coroutine's


@dataclass(frozen=True)
class RegionName:
    """A region's number in the ring and the user's name for it."""

    number: int
    name: str


@dataclass(frozen=True)
class Watching:
    """The phases whose hooks are installed, those that cannot be and why, whether steps are inferred, and the clock."""

    phases: tuple[str, ...]
    unseen: Mapping[str, str] = field(default_factory=dict)
    total_steps: Optional[int] = None
    infers: bool = False  # until the first trace_step
    clock: str = "host"  # "device": events are recorded beside the stamps
    clock_note: str = ""  # why host, where a device might be expected: "MPS and XPU use the host clock"


@dataclass(frozen=True)
class StepFailure:
    """A step that raised, and the name of what it raised."""

    step: int
    exception: str


@dataclass(frozen=True)
class Fault:
    """A fault of ours inside the user's process: which hook, what, how often so far, and whether it is off now."""

    hook: str
    error: str
    num_times: int
    is_off: bool


@dataclass(frozen=True)
class Compilation:
    """A compilation of the step's thread, or that something runs uncompiled from now on (`is_eager`)."""

    step: int
    at_ns: int  # when it was told, behind its step
    duration_ns: int
    num_compilations: int  # so far, this one too
    num_recompilations: int  # likewise
    is_again: bool = False  # of something that was compiled before
    is_eager: bool = False  # the compiler's limit of recompilations was reached
    function: str = ""
    reason: str = ""  # why again, in the compiler's words


@dataclass(frozen=True)
class Manifest:
    """What is known of a run when it starts: `manifest.json`."""

    schema_version: int
    name: str
    run_id: str
    created_at: float  # wall clock, seconds
    created_ns: int  # the records' clock at the same moment
    ring_dir: str
    script: str
    arguments: tuple[str, ...]  # masked
    cwd: str
    started_by: str  # "traceml run" | "init"
    hostname: str
    traceml_version: str
    python_version: str
    environment: Mapping[str, str] = field(default_factory=dict)  # an allow-list, masked
    settings: Mapping[str, str] = field(default_factory=dict)  # value and source of each that is not the default
    launcher_pid: Optional[int] = None
    total_steps: Optional[int] = None
    trace_max_steps: Optional[int] = None
    is_check: bool = False  # `traceml run --check`: what is asked for is the table


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, as its launcher and its ranks could tell."""

    status: str  # completed | failed | killed | unknown
    ended_by: str  # end | exception | exit | signal <NAME> | launcher | unknown
    exit_code: Optional[int]
    ended_ns: int
    ended_at: float  # wall clock, seconds
    exception: str = ""  # of several ranks, that of the first one to die, where it died of one
    first_death: str = ""  # of several ranks: "rank 1 killed by SIGKILL"
