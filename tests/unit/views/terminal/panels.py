"""Makes the runs that the golden panels show, each in a state of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Mapping

from tests.unit.views.report_builders import (
    COMPUTE_BOUND,
    COMPUTE_MS,
    GIB,
    INPUT_MS,
    LITTLE,
    NO_STEP,
    WAITING,
    report_of,
)
from traceml.report.contract import (
    BytesInfo,
    EventInfo,
    FindingInfo,
    ImpactInfo,
    PeriodInfo,
    PhaseRanks,
    RankRow,
    RanksInfo,
    Report,
    StepMemoryInfo,
    ThroughputInfo,
    VerdictInfo,
)
from traceml.report.series import Point, Series
from traceml.schema.panel import PanelRequest
from traceml.views.terminal.panel import Moment, metrics_of, panel
from traceml.views.text.columns import width_of

#: Terminals and the rows of their panels.
SIZES = {"80x24": (80, 8), "120x40": (120, 11), "40x12": (40, 4), "200x50": (200, 11)}
STATES = (
    "input_bound", "compute_bound", "straggler", "hang", "lost", "held", "quiet", "waiting", "first", "starting",
    "failed", "completed", "device",
)  # fmt: skip
_RUNNING: dict[str, Any] = {
    "status": "running", "ended_by": "unknown", "exit_code": None, "steps": 1204, "duration_s": 98.0,
    "total_steps": 5000, "first_step": 1, "last_step": 1204, "data_age_s": 0.0,
}  # fmt: skip
_HOST = {"num_cores": 16.0, "cpu_percent": 38.0, "memory_bytes": 12 * GIB, "memory_limit_bytes": 64 * GIB}
_GPU = {
    "name": "NVIDIA H200", "busy_percent": 24.0, "memory_bytes": int(3.3 * GIB), "memory_limit_bytes": 24 * GIB,
    "temperature_c": 42.0, "power_w": 96.0,
}  # fmt: skip
_LIVE: dict[str, Any] = {
    "rank": 0, "phase": "input", "since_s": 0.0, "step": 1205, "host": _HOST, "devices": [_GPU],
}  # fmt: skip
_MEMORY = StepMemoryInfo(
    None, BytesInfo(int(3.3 * GIB), 4 * GIB), None, BytesInfo(4 * GIB, int(4.1 * GIB)), 24 * GIB, None, None, "cuda"
)
_EVENTS = (EventInfo("evaluation", 400, 0, 6200.0, 2), EventInfo("checkpoint", 1100, 0, 204.0, 1))
_STRAGGLER = VerdictInfo(
    diagnosis="STRAGGLER",
    severity="warning",
    summary="Rank 3 is late in input: all ranks wait 18.4 of 81.0 ms a step for it.",
    why="rank 3 came last in 96 % of 1,180 steps",
    next="look at rank 3's data: its shard, its disk, its workers",
    impact=ImpactInfo(18.4, 22.7, 17.0, 19.9, 1.29),
)
_RANKS = RanksInfo(
    0,
    3,
    (RankRow(3, 1180, 81.0, {"input": 61.0}, own_ms=79.0), RankRow(0, 1180, 81.0, {"input": 3.1}, own_ms=21.0)),
    {"input": PhaseRanks(3.1, 61.0, 3), "forward": PhaseRanks(25.0, 25.9, 1), "sync": PhaseRanks(58.0, 58.4, 1)},
)


def seen(name: str) -> tuple[Report, Moment]:
    """A run in a state, and what only a watcher knows."""
    report = {
        "input_bound": _running,
        "compute_bound": lambda: _running(verdict=COMPUTE_BOUND, mean_ms=COMPUTE_MS, period=LITTLE),
        "straggler": _straggler,
        "hang": lambda: _stalled({"stall": "hang", "told": "rank 2 in input, asleep; ranks 0, 1 and 3 wait"}),
        "lost": lambda: _stalled({"lost": [[2, 1204]]}),
        "held": lambda: _running(data_age_s=14.0),
        "quiet": lambda: _running(live={**_LIVE, "phase": "checkpoint", "since_s": 41.0}),
        "waiting": lambda: _running(
            verdict=WAITING, mean_ms=COMPUTE_MS, period=LITTLE, steps=3, last_step=3, warmup_steps=0, events=()
        ),
        "first": lambda: _nothing_yet({**_LIVE, "phase": "compile", "since_s": 8.0, "step": 1}),
        "starting": lambda: _nothing_yet(None),
        "failed": _failed,
        "completed": lambda: report_of(events=_EVENTS, memory=_MEMORY, total_steps=5000, last_step=5000),
        "device": _device,
    }[name]()
    return report, Moment(12.4, 41.0 if name in ("quiet", "hang", "lost") else 0.3)


def series_of(report: Report) -> dict[str, Series]:
    """The curves of a report's panel: a calm one with a slow step in fifty, and memory that grows once."""
    found: dict[str, Series] = {}
    if not report.run.steps:
        return found
    rank = report.step_time.ranks.median or 0
    means = {"period": 80.0, "input": 37.0, "forward": 31.0, "backward": 40.0}
    for metric in metrics_of(report):
        size = means.get(metric.rpartition(":")[2], 20.0)
        found[metric] = Series(metric, "ms", {rank: _points(size, report)})
    memory = tuple(Point(s, s, *[(3.1 if s < 200 else 3.3) * GIB] * 3) for s in range(1, _length(report)))
    found["allocated"] = Series("allocated", "bytes", {rank: memory})
    return found


def drawn(name: str, size: str, *, colours: str = "none", background: str = "dark", ascii: bool = False) -> list[str]:  # noqa: A002
    """A golden panel."""
    report, moment = seen(name)
    columns, rows = SIZES[size]
    request = PanelRequest(columns, rows, colours, background, ascii)
    return panel(request, report, series_of(report), moment)


def cells(row: str) -> int:
    """How wide a drawn row is."""
    return width_of(plain(row))


def plain(row: str) -> str:
    """A drawn row without its sequences."""
    return "".join(part.partition("m")[2] for part in ("m" + row).split("\x1b["))


def _length(report: Report) -> int:
    return min(300, report.run.steps) + 1


def _points(size: float, report: Report) -> tuple[Point, ...]:
    def value(step: int) -> float:
        return size * (1 + 0.1 * math.sin(step / 9)) * (2.6 if step % 97 == 50 else 1.0)

    return tuple(Point(step, step, value(step), value(step), value(step)) for step in range(1, _length(report)))


def _running(**changes: Any) -> Report:
    kept: Mapping[str, Any] = {
        "mean_ms": INPUT_MS, "period": PeriodInfo(81.0, 80.0, 96.0, 140.0, 212.0), "memory": _MEMORY, "events": _EVENTS,
        "throughput": ThroughputInfo(856.0, None, 790.0, 12.4), "live": _LIVE, **_RUNNING,
    }  # fmt: skip
    return report_of(**{**kept, **changes})


def _nothing_yet(live: Any) -> Report:
    nothing = PeriodInfo(None, None, None, None, None)
    none_kept = StepMemoryInfo(None, None, None, None, None, None, None, None)
    return _running(
        verdict=NO_STEP, mean_ms={}, period=nothing, memory=none_kept, throughput=ThroughputInfo(), events=(),
        live=live, steps=0, last_step=None, first_step=None, duration_s=12.4, ranks=RanksInfo(None, None),
    )  # fmt: skip


def _straggler() -> Report:
    mean_ms = {"input": 3.1, "forward": 25.0, "backward": 14.6, "sync": 35.1, "optimizer": 3.2}
    report = _running(verdict=_STRAGGLER, mean_ms=mean_ms, ranks=_RANKS, world_size=4)
    v = _STRAGGLER
    finding = FindingInfo(v.diagnosis, v.severity, v.summary, v.why, v.next, "", (3,), ("input",), v.impact)
    return replace(report, step_time=replace(report.step_time, findings=(finding,)))


def _stalled(more: dict[str, Any]) -> Report:
    report = _straggler()
    live = {**_LIVE, "rank": 2, "since_s": 41.0, "step": 1204, **more}
    return replace(report, run=replace(report.run, live=live))


def _failed() -> Report:
    event = EventInfo("failed step", 41, 0, 61.2, 1, "ValueError in forward")
    return report_of(
        status="failed", ended_by="exception", exit_code=1, exception="ValueError", steps=41, failed_steps=1,
        duration_s=6.4, events=(event,), memory=_MEMORY, last_step=41,
    )  # fmt: skip


def _device() -> Report:
    report = _running()
    return replace(report, step_time=replace(report.step_time, clock="device"))
