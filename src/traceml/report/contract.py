"""Defines the Report: what `final_summary.json` holds and every face shows.

Times are ms, sizes bytes, null is never measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Mapping, Optional

from traceml.report.contract_attempts import AttemptInfo

SCHEMA_VERSION: Final = 1
#: A running run's data is said to be of some time ago when nothing newer came for so long.
STALE_S: Final = 5.0


@dataclass(frozen=True)
class RunInfo:
    """The run: its name, how long it took, how it ended."""

    name: str
    status: str  # running | completed | failed | killed | unknown
    started_at: str  # ISO 8601, UTC
    duration_s: float
    startup_s: Optional[float]
    tail_s: Optional[float]
    steps: int
    warmup_steps: int
    failed_steps: int
    inferred: bool
    world_size: int
    nodes: int
    exit_code: Optional[int]
    ended_by: str  # end | exception | exit | signal <NAME> | launcher | unknown
    traceml_version: str
    run_id: str = ""
    script: str = ""
    folder: str = ""
    hostname: str = ""
    python_version: str = ""
    torch_version: str = ""
    device: str = "cpu"
    exception: str = ""
    total_steps: Optional[int] = None
    micro_batches: Optional[int] = None
    optimizer_steps: Optional[int] = None
    warmup_s: Optional[float] = None
    first_step: Optional[int] = None
    last_step: Optional[int] = None
    user_step: Optional[int] = None
    live: Optional[Mapping[str, Any]] = (
        None  # while running: {"rank", "phase", "since_s", "step"}, "halted", "stall" and "told" while they are
    )
    reported_at: str = ""  # ISO 8601, UTC: when this report was built
    compilations: Optional[int] = None  # of all ranks; null where the compiler cannot be watched
    recompilations: Optional[int] = None
    data_age_s: Optional[float] = None  # while running: how old the newest data was then
    halted_steps: int = 0  # left out: the process was stopped or traced by a debugger
    restarts: int = 0
    model: str = ""  # the traced ones: class and number of parameters
    first_death: str = ""  # of several ranks: "rank 1 killed by SIGKILL"


@dataclass(frozen=True)
class ImpactInfo:
    """A price: ms and percent of the period, its 95 % interval in ms, and the speed-up without."""

    ms: float
    pct: float
    low_ms: float
    high_ms: float
    speedup: float
    steps: Optional[int] = None  # it is the price of so many steps; null: of all steady ones


@dataclass(frozen=True)
class EvidenceInfo:
    """A number a rule compared."""

    name: str
    value: float
    limit: Optional[float]
    unit: str


@dataclass(frozen=True)
class FindingInfo:
    """A rule's answer."""

    diagnosis: str
    severity: str
    summary: str
    why: str
    next: str
    rule: str
    ranks: tuple[int, ...] = ()
    phases: tuple[str, ...] = ()
    impact: Optional[ImpactInfo] = None
    evidence: tuple[EvidenceInfo, ...] = ()


@dataclass(frozen=True)
class VerdictInfo:
    """The sentence people trust, its price and the next step."""

    diagnosis: str
    severity: str
    summary: str
    why: str
    next: str
    impact: Optional[ImpactInfo]
    section: str = "step_time"  # step_time | system | step_memory


@dataclass(frozen=True)
class PeriodInfo:
    """The period of the steady steps in ms; null without any."""

    mean: Optional[float]
    p50: Optional[float]
    p95: Optional[float]
    p99: Optional[float]
    max: Optional[float]


@dataclass(frozen=True)
class PhaseInfo:
    """A phase over the steady steps, zero where a step had none of it; `count` is the number of steps that had it."""

    pct: Optional[float]
    mean_ms: Optional[float]
    p50_ms: Optional[float]
    p95_ms: Optional[float]
    p99_ms: Optional[float]
    max_ms: Optional[float]
    count: int


@dataclass(frozen=True)
class RankRow:
    """One rank's steady steps: means in ms a step. The last four are of its work between two synchronisations."""

    rank: int
    steps: int
    period_ms: Optional[float]
    phases_ms: Mapping[str, Optional[float]]
    own_ms: Optional[float] = None
    gain_ms: Optional[float] = None  # what all would win if it were like the others
    last_pct: Optional[float] = None  # of the synchronisations it came last in
    memory_bytes: Optional[int] = None  # the most it held


@dataclass(frozen=True)
class PhaseRanks:
    """A phase over the ranks: the mean ms of the median rank, and of the worst one, which is named."""

    median_ms: Optional[float]
    worst_ms: Optional[float]
    worst: Optional[int]


@dataclass(frozen=True)
class SyncInfo:
    """What the ranks lose to one another, over the units between two synchronisations: means in ms a step."""

    units: int
    steps: int
    lost_ms: float  # to whoever comes last
    transfer_ms: float  # communication itself
    unaligned: int = 0  # steps in which the ranks did not synchronise alike
    undecided: str = ""  # why no rank can be named; empty: it can


@dataclass(frozen=True)
class RanksInfo:
    """The median rank, the worst one, and at most 16 rows: the worst, then the first."""

    median: Optional[int]
    worst: Optional[int]
    by_rank: tuple[RankRow, ...] = ()
    phases: Mapping[str, PhaseRanks] = field(default_factory=dict)  # with several ranks
    sync: Optional[SyncInfo] = None  # with several ranks


@dataclass(frozen=True)
class BlockInfo:
    """Consecutive steady steps: how many, the median period, and the mean ms of each phase of at least 0.1 ms.

    All on the clock of `step_time`; where that is the device's, `wall_period_ms` is the median of the host's.
    """

    steps: int
    period_ms: float
    mean_ms: Mapping[str, float]
    wall_period_ms: Optional[float] = None


@dataclass(frozen=True)
class RunAheadInfo:
    """How long after the host the device comes to a step's end: the medians of the lower and of the upper bounds in ms.

    `steps` of the steady steps have an upper bound, in `near_steps` of them it is under 0.2 ms.
    """

    low_p50_ms: Optional[float]
    high_p50_ms: Optional[float]
    steps: int
    near_steps: int


@dataclass(frozen=True)
class StepTimeInfo:
    """Where the steady steps' time went, on the clock that was judged on. The percentages add up to 100."""

    diagnosis: str
    dataloader_pct: Optional[float]
    h2d_pct: Optional[float]
    forward_pct: Optional[float]
    backward_pct: Optional[float]
    sync_pct: Optional[float]
    optimizer_pct: Optional[float]
    eval_pct: Optional[float]
    checkpoint_pct: Optional[float]
    other_pct: Optional[float]
    period_ms: PeriodInfo
    clock: str  # device | host
    phases: Mapping[str, PhaseInfo]
    ranks: RanksInfo
    findings: tuple[FindingInfo, ...] = ()
    blocks: tuple[BlockInfo, ...] = ()
    epoch_start: Optional[PhaseInfo] = None
    wall_period_ms: Optional[PeriodInfo] = None  # on the host's clock; that of `period_ms` where that is the host's
    run_ahead_ms: Optional[RunAheadInfo] = None  # null without the device's clock


@dataclass(frozen=True)
class BytesInfo:
    """A size over the steps."""

    p50: Optional[int]
    max: Optional[int]


@dataclass(frozen=True)
class MemoryRanks:
    """The most a rank held: that of the median rank, and of the worst one, which is named."""

    median_bytes: int
    worst_bytes: int
    worst: int


@dataclass(frozen=True)
class StepMemoryInfo:
    """Memory of the largest rank; `diagnosis` is null until its rules exist."""

    diagnosis: Optional[str]
    allocated_bytes: Optional[BytesInfo]
    reserved_bytes: Optional[BytesInfo]
    peak_bytes: Optional[BytesInfo]
    capacity_bytes: Optional[int]
    slope_bytes_per_step: Optional[float]
    full_in_steps: Optional[tuple[int, int]]
    source: Optional[str]  # cuda | mps | rss
    findings: tuple[FindingInfo, ...] = ()
    ranks: Optional[MemoryRanks] = None  # with several ranks


@dataclass(frozen=True)
class SystemInfo:
    """The host within the run's cgroup, and the devices the run uses."""

    diagnosis: str
    num_cores: Optional[float] = None
    cpu_percent_mean: Optional[float] = None
    cpu_percent_max: Optional[float] = None
    throttled_pct: Optional[float] = None
    memory_bytes_max: Optional[int] = None
    memory_limit_bytes: Optional[int] = None
    devices: tuple[str, ...] = ()
    device_busy_percent_mean: Optional[float] = None
    samples: int = 0
    findings: tuple[FindingInfo, ...] = ()


@dataclass(frozen=True)
class ProcessInfo:
    """The run's own training processes, seen from outside."""

    rss_bytes_p50: Optional[int] = None
    rss_bytes_max: Optional[int] = None
    cpu_percent_mean: Optional[float] = None
    num_threads_max: Optional[int] = None
    read_bytes: Optional[int] = None
    write_bytes: Optional[int] = None
    waited_for_core_pct: Optional[float] = None  # of the time, ready to run; of the rank that waited most; Linux only


@dataclass(frozen=True)
class ThroughputInfo:
    """Samples and tokens a second of training time (steady periods without eval and checkpoint), and of the wall."""

    samples_per_s: Optional[float] = None
    tokens_per_s: Optional[float] = None
    wall_samples_per_s: Optional[float] = None
    steps_per_s: Optional[float] = None


@dataclass(frozen=True)
class EventInfo:
    """Something worth a line; equal ones are folded into `count`, and `ms` is then their median."""

    kind: str
    step: int
    rank: int
    ms: Optional[float]
    count: int = 1
    text: str = ""


@dataclass(frozen=True)
class OverheadInfo:
    """What tracing itself cost, and how that was measured."""

    us_per_step: float
    pct: float
    method: str


@dataclass(frozen=True)
class RankCoverage:
    """What was heard of a rank."""

    rank: int
    first_step: Optional[int]
    last_step: Optional[int]
    lost_frames: int
    device_steps: Optional[int] = None  # steady steps with the device's clock; null where none has it
    steady_steps: Optional[int] = None  # all steady steps
    until_s: Optional[float] = None  # its last edge, in seconds since the run was made
    end: Optional[str] = None  # end | exception | shutdown | ...; null: it has not said goodbye


@dataclass(frozen=True)
class FaultInfo:
    """A fault of ours in the training process, and whether its hook was switched off."""

    hook: str
    error: str
    count: int
    off: bool


@dataclass(frozen=True)
class CoverageInfo:
    """What the report rests on: the clock, the ranks heard, the phases never seen, our own faults."""

    clock: str
    ranks: tuple[RankCoverage, ...] = ()
    unseen: tuple[str, ...] = ()
    faults: tuple[FaultInfo, ...] = ()
    clock_note: str = ""  # why not the device's, where there is a device
    notes: tuple[str, ...] = ()  # one sentence each: what was lost, moved, or cannot be seen


@dataclass(frozen=True)
class Report:
    """The JSON contract."""

    schema_version: int
    run: RunInfo
    verdict: VerdictInfo
    step_time: StepTimeInfo
    step_memory: StepMemoryInfo
    system: SystemInfo
    process: ProcessInfo
    throughput: ThroughputInfo
    coverage: CoverageInfo
    layers: Optional[Mapping[str, Any]] = None
    events: tuple[EventInfo, ...] = ()
    overhead: Optional[OverheadInfo] = None
    loader: Mapping[str, Any] = field(default_factory=dict)
    attempts: tuple[AttemptInfo, ...] = ()  # before the one that this report is of, at most the last 8
