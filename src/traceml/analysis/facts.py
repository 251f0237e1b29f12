"""States what is known of a run, or of a range of its steps: the one input of every rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Mapping, Optional

from traceml.schema import phases
from traceml.schema.distribution import Distribution
from traceml.schema.records import Event, LoaderInfo, MemoryReading, RankState
from traceml.schema.syncs import UnitSums

_BEHIND: Final = 1.25  # times the own work of the next faster rank
_APART: Final = 2.0  # times what those behind differ by themselves


@dataclass(frozen=True)
class Chunk:
    """Consecutive steady steps of one rank, for blocks and for the bootstrap. Means are ns a step."""

    first_step: int
    last_step: int
    num_steps: int
    period_median_ns: float
    period_mean_ns: float
    phase_mean_ns: Mapping[str, float]
    epoch_start_mean_ns: float = 0.0  # part of input
    wall_median_ns: Optional[float] = None  # the median period on the host's clock, where the others are the device's


#: The device's clock is judged on when at least this share of the steady steps has it: those that were lost may be of a
#: kind (captured graphs, the longest ones), and with a fifth of them missing a share can be wrong by a fifth.
MOST_STEPS = 0.8

#: Phases that are zero when unseen, but only where their hook is installed.
_HOOKED = frozenset({phases.EVAL, phases.CHECKPOINT, phases.GC})


def is_absent_when_unseen(phase: str, watched: tuple[str, ...]) -> bool:
    """Whether a phase without a single edge was not measured, as against measured to be nothing.

    Args:
        phase: A phase's name.
        watched: The phases whose hooks are installed; empty when nobody said so.
    """
    return phase in phases.ABSENT_WHEN_UNSEEN or (bool(watched) and phase in _HOOKED and phase not in watched)


@dataclass(frozen=True)
class DeviceFacts:
    """The steady steps of a rank that have the device's clock. `run_ahead_*` count the steps where a bound is known."""

    num_steps: int
    period: Distribution
    phases: Mapping[str, Distribution]
    epoch_start: Distribution
    chunks: tuple[Chunk, ...]
    run_ahead_low: Distribution
    run_ahead_high: Distribution


@dataclass(frozen=True)
class RankFacts:
    """One rank's steady steps: no warm-up, no failed step, none in which the process was stopped or traced.

    On the device's clock they are only those that have it. `num_steady`, `period`, `phases`, `epoch_start` and `chunks`
    are on the clock of the Facts. `phases` is keyed by phase name and `region:<name>`; a phase that was never seen, and
    whose absence is not a zero, is missing. Its distribution counts only the steps that had an edge of it.
    """

    state: RankState
    num_steps: int  # all finished ones, failed, halted and warm-up too
    num_warmup: int
    num_failed: int
    num_steady: int
    warmup_ns: int
    period: Distribution
    phases: Mapping[str, Distribution]
    epoch_start: Distribution
    chunks: tuple[Chunk, ...] = ()  # at most 64, in order
    num_micro_batches: int = 0  # of the steady steps, as the three below
    num_optimizer_steps: int = 0
    num_samples: Optional[int] = None
    num_tokens: Optional[int] = None
    all_micro_batches: int = 0  # of all finished steps, failed and warm-up too, as the three below
    all_optimizer_steps: int = 0
    all_samples: Optional[int] = None
    all_tokens: Optional[int] = None
    startup_ns: Optional[int] = None
    tail_ns: Optional[int] = None
    first_steady_step: int = 0  # 0: there is no warm-up
    num_halted: int = 0  # left out: the process was stopped or traced
    core_wait_share: Optional[float] = None  # of the time its main thread was ready and had no core; None: not known
    device: Optional[DeviceFacts] = None  # None: no steady step has the device's clock
    host: Optional[RankFacts] = None  # the same rank on the host's clock, where this one is on the device's

    @property
    def wall(self) -> RankFacts:
        """The same rank on the host's clock: the periods as the wall clock has them."""
        return self if self.host is None else self.host

    @property
    def num_untimed(self) -> int:
        """The number of steady steps that are left out, as they have no device times; 0 on the host's clock."""
        return self.wall.num_steady - self.num_steady

    def on_device(self) -> RankFacts:
        """The same rank on the device's clock, which it has."""
        device = self.device
        assert device is not None
        return replace(
            self,
            num_steady=device.num_steps,
            period=device.period,
            phases=device.phases,
            epoch_start=device.epoch_start,
            chunks=device.chunks,
            host=self,
        )

    @property
    def total_ns(self) -> int:
        """The sum of the steady periods."""
        return self.period.total

    def phase_ns(self, phase: str) -> Optional[int]:
        """The phase's sum over the steady steps; None when it was never seen."""
        found = self.phases.get(phase)
        if found is None:
            return None if is_absent_when_unseen(phase, self.state.watched) else 0
        return found.total

    def num_without(self, phase: str) -> int:
        """The number of steady steps that had no edge of the phase."""
        found = self.phases.get(phase)
        return self.num_steady - (found.count if found is not None else 0)

    def mean_ns(self, phase: str) -> Optional[float]:
        """The phase's mean over all steady steps in ns; None when it was never seen, or without steady steps."""
        spent = self.phase_ns(phase)
        return None if spent is None or not self.num_steady else spent / self.num_steady

    def share(self, phase: str) -> Optional[float]:
        """The phase's share (0..1) of the steady periods; None when it was never seen, or without steady steps."""
        spent = self.phase_ns(phase)
        return None if spent is None or not self.total_ns else spent / self.total_ns

    @property
    def typical_ns(self) -> Optional[float]:
        """The median steady period."""
        return self.period.quantile(0.5)


@dataclass(frozen=True)
class LedgerFacts:
    """What the ranks did between two syncs, of the steady steps; and what of it could not be aligned, of all steps."""

    whole: Optional[UnitSums] = None
    chunks: tuple[UnitSums, ...] = ()  # at most 256 of consecutive units, in order
    clock: str = "host"  # of the cuts it rests on
    num_synced: int = 0  # steps in which all ranks synchronised
    num_unaligned: int = 0  # steps in which the ranks did not synchronise alike
    unaligned: str = ""  # the first of them, in words
    num_without_partner: int = 0  # steps that not every rank has

    @property
    def num_units(self) -> int:
        """The number of steady units."""
        return self.whole.num_units if self.whole else 0


@dataclass(frozen=True)
class SystemFacts:
    """The host and the run's processes over the run; None is not sampled."""

    num_samples: int = 0
    num_cores: Optional[float] = None
    cpu_percent_mean: Optional[float] = None
    cpu_percent_max: Optional[float] = None
    throttled_share: Optional[float] = None  # of samples
    overrun_share: Optional[float] = None  # of samples with more runnable tasks than allowed cores
    memory_bytes_max: Optional[int] = None
    memory_limit_bytes: Optional[int] = None
    device_names: tuple[str, ...] = ()
    device_busy_percent_mean: Optional[float] = None
    device_busy_percent_steady: Optional[float] = None  # of the samples within the steady steps
    num_device_samples_steady: int = 0
    device_throttled_share: Optional[float] = None
    throttle_reasons: tuple[str, ...] = ()
    rss_bytes_p50: Optional[int] = None  # of the largest rank
    rss_bytes_max: Optional[int] = None
    process_cpu_percent_mean: Optional[float] = None  # of one core, all ranks
    num_threads_max: Optional[int] = None
    read_bytes: Optional[int] = None
    write_bytes: Optional[int] = None


@dataclass(frozen=True)
class MemoryFacts:
    """A rank's memory over the steps: quantiles of what it held, and the newest reading."""

    rank: int
    source: str  # "cuda" | "mps" | "rss"
    allocated: Distribution
    reserved: Optional[Distribution]
    peak: Optional[Distribution]
    capacity_bytes: Optional[int]
    newest: Optional[MemoryReading] = None


@dataclass(frozen=True)
class Ending:
    """How the run ended, or that it goes on. `words` is empty while it does, and after its own good end."""

    words: str = ""  # "failed with ValueError", "killed by SIGTERM"
    has_failed: bool = False  # by the script's own doing: an exception, an exit code
    exception: str = ""  # its name, where one ended the run
    is_running: bool = False


@dataclass(frozen=True)
class Facts:
    """Everything the rules may look at. `first_step` to `last_step` is the range spoken of, over all ranks."""

    clock: str  # "host" | "device"
    ranks: tuple[RankFacts, ...]
    world_size: int = 1
    inferred: bool = False
    unsure: str = ""  # why inferred steps cannot be trusted; empty: they can
    first_step: Optional[int] = None
    last_step: Optional[int] = None
    loader: Optional[LoaderInfo] = None  # the training loader
    system: SystemFacts = field(default_factory=SystemFacts)
    memory: tuple[MemoryFacts, ...] = ()
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()  # one sentence each: what had to be counted in, or could not be told apart
    ending: Ending = field(default_factory=Ending)
    ledger: Optional[LedgerFacts] = None  # None: nobody has aligned ranks
    calm: Optional[Facts] = None  # the same without a few very long waits; None: there are none
    outliers: tuple[tuple[int, int], ...] = ()  # those waits: the last step of each, and what it cost in ns

    @property
    def median_rank(self) -> Optional[RankFacts]:
        """The rank whose mean own work is the lower median, None without steady steps anywhere.

        Where half of three and more ranks, or more, are about alike and behind the others by a quarter, it is the
        median of the others.
        """
        steady = [rank for rank in self.ranks if rank.num_steady]
        if not steady:
            return None
        ordered = sorted(steady, key=_own_ns)
        own_ns = [_own_ns(rank) for rank in ordered]
        middle = (len(ordered) - 1) // 2
        for at in range(middle, 0, -1):
            gap_ns = own_ns[at] - own_ns[at - 1]
            if own_ns[at] >= _BEHIND * own_ns[at - 1] and gap_ns >= _APART * (own_ns[-1] - own_ns[at]):
                return ordered[(at - 1) // 2]
        return ordered[middle]


def _own_ns(rank: RankFacts) -> float:
    """What a rank with steady steps does beside waiting, a step."""
    return (rank.total_ns - (rank.phase_ns(phases.SYNC) or 0)) / rank.num_steady
