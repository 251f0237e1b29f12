"""Makes the smallest true Report, and the runs that the golden cards show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, Optional

from traceml.report.contract import (
    BytesInfo,
    CoverageInfo,
    EventInfo,
    ImpactInfo,
    PeriodInfo,
    PhaseInfo,
    ProcessInfo,
    RankRow,
    RanksInfo,
    Report,
    RunInfo,
    StepMemoryInfo,
    StepTimeInfo,
    SystemInfo,
    ThroughputInfo,
    VerdictInfo,
)
from traceml.schema import phases

GIB = 1 << 30

RUN = RunInfo(
    name="vit-small",
    status="completed",
    started_at="2027-01-15T08:00:00+00:00",
    duration_s=405.0,
    startup_s=2.4,
    tail_s=0.1,
    steps=5000,
    warmup_steps=3,
    failed_steps=0,
    inferred=False,
    world_size=1,
    nodes=1,
    exit_code=0,
    ended_by="end",
    traceml_version="0.1.0",
    folder="logs/vit-small",
    warmup_s=1.2,
)
INPUT_BOUND = VerdictInfo(
    diagnosis="INPUT_BOUND",
    severity="critical",
    summary="44 % of each step waits for data: 35.6 of 81.0 ms.",
    why="input 35.6 of 81.0 ms a step; num_workers=0, batch_size=64",
    next="num_workers=4 (one worker makes a batch in 35 ms), pin_memory=True",
    impact=ImpactInfo(ms=35.6, pct=44.0, low_ms=34.1, high_ms=37.0, speedup=1.78),
)
COMPUTE_BOUND = VerdictInfo(
    diagnosis="COMPUTE_BOUND",
    severity="info",
    summary="97 % of the time is the model's own work: forward 39 %, backward 50 %, optimizer 8 %.",
    why="no other part is worth a change; the largest is between steps, 2 %",
    next="profile three steps: torch.profiler.profile(schedule=torch.profiler.schedule(wait=11, warmup=1, active=3)), "
    "prof.step() after each step",
    impact=None,
)
WAITING = VerdictInfo(
    diagnosis="INSUFFICIENT_DATA",
    severity="info",
    summary="3 of 8 steady steps seen.",
    why="3 finished: 0 warm-up, 0 failed, 3 steady",
    next="run at least 5 more steps",
    impact=None,
)
NO_STEP = VerdictInfo(
    diagnosis="INSUFFICIENT_DATA",
    severity="info",
    summary="No step was seen.",
    why="no `trace_step` was entered and left, no optimizer stepped",
    next="put `with traceml.trace_step(model):` around the body of the training loop",
    impact=None,
)
INPUT_MS = {"input": 35.6, "forward": 21.1, "backward": 14.6, "optimizer": 3.2, "eval": 6.2, "in_step": 0.3}
COMPUTE_MS = {"input": 0.2, "forward": 31.4, "backward": 40.2, "optimizer": 6.4, "gc": 0.1, "between_steps": 1.9}
LITTLE = PeriodInfo(80.2, 80.0, 83.1, 84.0, 84.2)
CARDS = ("input_bound", "compute_bound", "insufficient_data", "no_step", "failed", "killed", "running", "two_ranks")


def phase_rows(mean_ms: Mapping[str, float]) -> dict[str, PhaseInfo]:
    """A row a phase from its mean; phases without one were never seen."""
    total = sum(mean_ms.values())
    names = (*phases.PHASES, *(name for name in mean_ms if name not in phases.PHASE_INDEX))
    rows = {}
    for name in names:
        ms = mean_ms.get(name)
        pct = None if ms is None or not total else round(100 * ms / total, 1)
        rows[name] = PhaseInfo(pct, ms, ms, ms, ms, ms, 0 if ms is None else 100)
    return rows


def report_of(
    *,
    verdict: VerdictInfo = INPUT_BOUND,
    mean_ms: Optional[Mapping[str, float]] = None,
    period: PeriodInfo = PeriodInfo(81.0, 74.0, 96.0, 140.0, 6260.0),  # noqa: B008  # frozen
    ranks: RanksInfo = RanksInfo(0, None),  # noqa: B008  # frozen
    events: tuple[EventInfo, ...] = (),
    notes: tuple[str, ...] = (),
    memory: Optional[StepMemoryInfo] = None,
    throughput: ThroughputInfo = ThroughputInfo(),  # noqa: B008  # frozen
    **run: Any,
) -> Report:
    """A report with what matters to a face."""
    nothing: Any = {key: None for key in StepTimeInfo.__annotations__ if key.endswith("_pct")}
    none_kept = StepMemoryInfo(None, None, None, None, None, None, None, None)
    return Report(
        schema_version=1,
        run=replace(RUN, **run),
        verdict=verdict,
        step_time=StepTimeInfo(
            diagnosis=verdict.diagnosis,
            **nothing,
            period_ms=period,
            clock="host",
            phases=phase_rows(INPUT_MS if mean_ms is None else mean_ms),
            ranks=ranks,
        ),
        step_memory=memory or none_kept,
        system=SystemInfo("NORMAL"),
        process=ProcessInfo(),
        throughput=throughput,
        coverage=CoverageInfo("host", notes=notes),
        events=events,
    )


def golden(name: str) -> Report:
    """The run that a golden card shows."""
    return {
        "input_bound": _input_bound,
        "compute_bound": _compute_bound,
        "insufficient_data": _insufficient_data,
        "no_step": _no_step,
        "failed": _failed,
        "killed": _killed,
        "running": _running,
        "two_ranks": _two_ranks,
    }[name]()


def _input_bound() -> Report:
    return report_of(
        events=(EventInfo("evaluation", 1000, 0, 6200.0, 5), EventInfo("checkpoint", 1000, 0, 204.0, 5)),
        memory=StepMemoryInfo(
            None,
            BytesInfo(int(3.3 * GIB), 4 * GIB),
            None,
            BytesInfo(4 * GIB, int(4.1 * GIB)),
            24 * GIB,
            None,
            None,
            "cuda",
        ),
        throughput=ThroughputInfo(856.0, None, 790.0, 13.4),
    )


def _compute_bound() -> Report:
    return report_of(
        verdict=COMPUTE_BOUND,
        mean_ms=COMPUTE_MS,
        period=LITTLE,
        memory=StepMemoryInfo(None, BytesInfo(812 << 20, 840 << 20), None, None, 31 * GIB, None, None, "rss"),
        throughput=ThroughputInfo(798.0, 102_000.0, 781.0, 12.5),
    )


def _insufficient_data() -> Report:
    return report_of(verdict=WAITING, mean_ms=COMPUTE_MS, period=LITTLE, steps=3, duration_s=2.7, warmup_steps=0)


def _no_step() -> Report:
    nothing = PeriodInfo(None, None, None, None, None)
    gone: Any = {"startup_s": None, "tail_s": None, "warmup_s": None, "warmup_steps": 0, "steps": 0, "duration_s": 1.9}
    return report_of(verdict=NO_STEP, mean_ms={}, period=nothing, ranks=RanksInfo(None, None), **gone)


def _failed() -> Report:
    event = EventInfo("failed step", 41, 0, 61.2, 1, "ValueError in forward")
    return report_of(
        status="failed", ended_by="exception", exit_code=1, exception="ValueError", steps=41, failed_steps=1,
        duration_s=6.4, events=(event,),
    )  # fmt: skip


def _killed() -> Report:
    return report_of(
        status="killed", ended_by="signal SIGKILL", exit_code=137, steps=41, duration_s=12.3,
        notes=("rank 0: 1,204 edges were lost before they could be read",),
    )  # fmt: skip


def _running() -> Report:
    live = {"rank": 0, "phase": "input", "since_s": 41.0, "step": 1205}
    return report_of(status="running", ended_by="unknown", exit_code=None, steps=1204, duration_s=98.0, live=live)


def _two_ranks() -> Report:
    rows = (
        RankRow(1, 4997, 81.0, {"input": 35.6, "forward": 21.1, "sync": 0.4}),
        RankRow(0, 4997, 81.0, {"input": 2.1, "forward": 21.0, "sync": 33.5}),
    )
    mean_ms = {"input": 2.1, "forward": 21.0, "backward": 14.9, "sync": 33.5, "optimizer": 3.2, "region:augment": 6.3}
    return report_of(mean_ms=mean_ms, ranks=RanksInfo(0, 1, rows), world_size=2)
