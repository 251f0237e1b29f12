"""Flattens a Report into one level of names and values, as experiment trackers take them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Optional, Union

if TYPE_CHECKING:
    from traceml.report.contract import BytesInfo, Report

Value = Union[float, int, str, None]
PREFIX: Final = "traceml/"
_ODD: Final = re.compile(r"[^\w\-. /]")  # what MLflow, W&B and TensorBoard do not all take


def flat_summary(report: Report) -> dict[str, Value]:
    """The report's figures under `traceml/<section>/<name>`; None is never measured.

    Names end in their unit: `_pct`, `_ms`, `_bytes`, `_s`, `_per_s`. Lists (findings, blocks, events) are left out.
    """
    flat: dict[str, Value] = {}
    flat.update(_run(report))
    flat.update(_step_time(report))
    flat.update(_rest(report))
    return {PREFIX + _ODD.sub("_", name): value for name, value in flat.items()}


def _run(report: Report) -> dict[str, Value]:
    run, verdict, impact = report.run, report.verdict, report.verdict.impact
    return {
        "diagnosis": verdict.diagnosis,
        "severity": verdict.severity,
        "summary": verdict.summary,
        "next": verdict.next,
        "impact_ms": impact.ms if impact else None,
        "impact_pct": impact.pct if impact else None,
        "speedup": impact.speedup if impact else None,
        "run/name": run.name,
        "run/status": run.status,
        "run/steps": run.steps,
        "run/failed_steps": run.failed_steps,
        "run/halted_steps": run.halted_steps,
        "run/warmup_steps": run.warmup_steps,
        "run/duration_s": run.duration_s,
        "run/startup_s": run.startup_s,
        "run/world_size": run.world_size,
    }


def _step_time(report: Report) -> dict[str, Value]:
    time = report.step_time
    flat: dict[str, Value] = {
        f"step_time/{name}": getattr(time, name)
        for name in (
            "diagnosis",
            "clock",
            "dataloader_pct",
            "h2d_pct",
            "forward_pct",
            "backward_pct",
            "sync_pct",
            "optimizer_pct",
            "eval_pct",
            "checkpoint_pct",
            "other_pct",
        )
    }
    sync = time.ranks.sync
    flat["step_time/lost_ms"] = sync.lost_ms if sync and sync.units else None
    flat["step_time/transfer_ms"] = sync.transfer_ms if sync and sync.units else None
    for name in ("mean", "p50", "p95", "p99", "max"):
        flat[f"step_time/period_{name}_ms"] = getattr(time.period_ms, name)
    flat["step_time/wall_period_mean_ms"] = time.wall_period_ms.mean if time.wall_period_ms else None
    for phase, info in time.phases.items():
        flat[f"step_time/{phase.replace(':', '/')}_ms"] = info.mean_ms
    return flat


def _rest(report: Report) -> dict[str, Value]:
    memory, rate = report.step_memory, report.throughput
    return {
        "throughput/samples_per_s": rate.samples_per_s,
        "throughput/tokens_per_s": rate.tokens_per_s,
        "throughput/wall_samples_per_s": rate.wall_samples_per_s,
        "throughput/steps_per_s": rate.steps_per_s,
        "memory/allocated_max_bytes": _most(memory.allocated_bytes),
        "memory/reserved_max_bytes": _most(memory.reserved_bytes),
        "memory/peak_max_bytes": _most(memory.peak_bytes),
        "system/diagnosis": report.system.diagnosis,
        "system/cpu_mean_percent": report.system.cpu_percent_mean,
        "process/rss_max_bytes": report.process.rss_bytes_max,
        "process/waited_for_core_pct": report.process.waited_for_core_pct,
    }


def _most(info: Optional[BytesInfo]) -> Optional[int]:
    return info.max if info else None
