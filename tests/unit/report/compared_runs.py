"""Makes reports to compare: from literals, or from simulated steps with noise, drift, outliers and autocorrelation."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from statistics import fmean, median
from typing import Any, Mapping, Optional, Sequence

from tests.unit.views.report_builders import report_of
from traceml.report.contract import BlockInfo, PeriodInfo, PhaseInfo, ProcessInfo, Report, SystemInfo, ThroughputInfo

BASE_MS: Mapping[str, float] = {"input": 8.0, "forward": 4.0, "backward": 6.0, "optimizer": 2.0}
#: A run that sleeps on a machine of its own: nothing but the base is allowed for drift.
QUIET = (SystemInfo("NORMAL", num_cores=2.0, cpu_percent_mean=3.0, samples=9), ProcessInfo(cpu_percent_mean=0.0))
#: A run that computes beside others.
BUSY = (SystemInfo("NORMAL", num_cores=2.0, cpu_percent_mean=80.0, samples=9), ProcessInfo(cpu_percent_mean=100.0))
FREE_OF_NOISE = (1.0, 1.002, 0.999, 1.001)
MAX_BLOCKS = 64


def run_of(
    mean_ms: Mapping[str, float] = BASE_MS,
    *,
    noise: float = 0.01,
    seed: int = 1,
    num_steps: int = 320,
    factors: Optional[Sequence[float]] = None,
    beside: tuple[SystemInfo, ProcessInfo] = QUIET,
    samples: Optional[float] = 32.0,
    **run: Any,
) -> Report:
    """A run whose steps take `mean_ms` by phase, each with noise of its own.

    Args:
        mean_ms: By phase; absent is never measured.
        noise: The standard deviation of each phase of each step, as a share.
        seed: Another one is another run of the same script.
        num_steps: Steady ones.
        factors: By which each step is longer: drift, outliers.
        beside: What else ran there.
        samples: A step; None: not counted.
        run: Fields of the run, and of the report.
    """
    random = Random(seed)
    factors = factors or [1.0] * num_steps
    rows = [
        {phase: max(0.0, ms * factor * (1 + noise * random.gauss(0, 1))) for phase, ms in mean_ms.items()}
        for factor in factors
    ]
    return report_from(rows, beside=beside, samples=samples, **{"name": f"run-{seed}", **run})


def report_from(
    rows: Sequence[Mapping[str, float]],
    *,
    beside: tuple[SystemInfo, ProcessInfo] = QUIET,
    samples: Optional[float] = 32.0,
    clock: str = "host",
    loader: Optional[Mapping[str, Any]] = None,
    **run: Any,
) -> Report:
    """The report of these steady steps, each a mapping of phases to ms."""
    periods = [sum(row.values()) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    means = {name: fmean(row.get(name, 0.0) for row in rows) for name in names}
    ordered = sorted(periods)
    p50, p95, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95, 0.99))
    rate = 1e3 / (fmean(periods) - means.get("eval", 0.0) - means.get("checkpoint", 0.0))
    made = report_of(
        mean_ms=means,
        period=PeriodInfo(fmean(periods), p50, p95, p99, max(periods)),
        throughput=ThroughputInfo(None if samples is None else samples * rate, None, None, rate),
        **{"steps": len(rows), "warmup_steps": 0, "hostname": "node-1", **run},
    )
    phases = {name: PhaseInfo(1.0, ms, ms, ms, ms, ms, len(rows)) for name, ms in means.items()}
    time = replace(made.step_time, blocks=blocks_of(rows), phases={**made.step_time.phases, **phases}, clock=clock)
    return replace(made, step_time=time, system=beside[0], process=beside[1], loader=loader or {})


def on_device(report: Report, *, wall_ms: float) -> Report:
    """The run on the device's clock, its step half as long there as on the wall's."""
    time = report.step_time
    blocks = tuple(
        replace(block, period_ms=block.period_ms / 2, wall_period_ms=wall_ms * (1 + 0.001 * (at % 5)))
        for at, block in enumerate(time.blocks)
    )
    wall = PeriodInfo(wall_ms, wall_ms, wall_ms, wall_ms, wall_ms)
    half = replace(time.period_ms, p50=(time.period_ms.p50 or 0.0) / 2)
    return replace(report, step_time=replace(time, clock="device", blocks=blocks, period_ms=half, wall_period_ms=wall))


def blocks_of(rows: Sequence[Mapping[str, float]]) -> tuple[BlockInfo, ...]:
    """At most 64 blocks of neighbours, as the recorder's reader cuts them."""
    groups: dict[int, list[Mapping[str, float]]] = {}
    for at, row in enumerate(rows):
        groups.setdefault(at * MAX_BLOCKS // max(len(rows), MAX_BLOCKS), []).append(row)
    return tuple(
        BlockInfo(
            len(group),
            median(sum(row.values()) for row in group),
            {
                name: fmean(row.get(name, 0.0) for row in group)
                for name in dict.fromkeys(n for row in group for n in row)
            },
        )
        for group in groups.values()
    )


def wandering(num_steps: int, *, size: float, memory: float, seed: int) -> list[float]:
    """Factors that come and go: an autoregressive process of standard deviation `size`, `memory` (0..1) a step."""
    random, value, found = Random(seed), 0.0, []
    value = random.gauss(0, size)
    for _ in range(num_steps):
        found.append(math.exp(value))
        value = memory * value + math.sqrt(1 - memory**2) * random.gauss(0, size)
    return found


def with_outliers(num_steps: int, *, share: float, times: float, seed: int) -> list[float]:
    """Factors of 1, and of `times` in a share of the steps."""
    random = Random(seed)
    return [times if random.random() < share else 1.0 for _ in range(num_steps)]


def slower(phase: str, more_ms: float) -> dict[str, float]:
    """The base with one phase that takes longer."""
    return {**BASE_MS, phase: BASE_MS[phase] + more_ms}
