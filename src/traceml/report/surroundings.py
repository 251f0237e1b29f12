"""Turns what was sampled from outside into the contract's memory, system and process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

from traceml.report.contract import BytesInfo, MemoryRanks, ProcessInfo, StepMemoryInfo, SystemInfo
from traceml.report.findings import findings_of

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, MemoryFacts, SystemFacts
    from traceml.diagnosis.finding import Diagnosis
    from traceml.schema.distribution import Distribution


def memory_info(facts: Facts, diagnosis: Diagnosis) -> StepMemoryInfo:
    """Memory of the rank that holds most, and of the ranks side by side."""
    memory = facts.memory
    largest = max(memory, key=lambda m: (m.peak or m.allocated).maximum or 0, default=None)
    return StepMemoryInfo(
        diagnosis=diagnosis.memory[0].diagnosis if diagnosis.memory else None,
        allocated_bytes=_bytes(largest.allocated) if largest else None,
        reserved_bytes=_bytes(largest.reserved) if largest else None,
        peak_bytes=_bytes(largest.peak) if largest else None,
        capacity_bytes=largest.capacity_bytes if largest else None,
        slope_bytes_per_step=None,
        full_in_steps=None,
        source=largest.source if largest else None,
        findings=findings_of(diagnosis.memory),
        ranks=_ranks(memory) if facts.world_size > 1 else None,
    )


def _ranks(memory: Sequence[MemoryFacts]) -> Optional[MemoryRanks]:
    """The lower median of the most that each rank held, and the largest."""
    held = sorted((most, one.rank) for one in memory for most in [one.allocated.maximum] if most is not None)
    if len(held) < 2:  # noqa: PLR2004  # nothing to compare
        return None
    worst_bytes, worst = held[-1]
    return MemoryRanks(held[(len(held) - 1) // 2][0], worst_bytes, worst)


def _bytes(found: Optional[Distribution]) -> Optional[BytesInfo]:
    if found is None:
        return None
    typical = found.quantile(0.5)
    return BytesInfo(None if typical is None else round(typical), found.maximum)


def system_info(system: SystemFacts, diagnosis: Diagnosis) -> SystemInfo:
    """The host over the run's samples."""
    no_finding = "NORMAL" if system.num_samples else "NO_DATA"
    return SystemInfo(
        diagnosis=diagnosis.system[0].diagnosis if diagnosis.system else no_finding,
        num_cores=system.num_cores,
        cpu_percent_mean=_tenth(system.cpu_percent_mean),
        cpu_percent_max=_tenth(system.cpu_percent_max),
        throttled_pct=_tenth(None if system.throttled_share is None else 100 * system.throttled_share),
        memory_bytes_max=system.memory_bytes_max,
        memory_limit_bytes=system.memory_limit_bytes,
        devices=system.device_names,
        device_busy_percent_mean=_tenth(system.device_busy_percent_mean),
        samples=system.num_samples,
        findings=findings_of(diagnosis.system),
    )


def _tenth(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 1)


def process_info(facts: Facts) -> ProcessInfo:
    """The training processes over the run's samples."""
    system = facts.system
    waits = [rank.core_wait_share for rank in facts.ranks if rank.core_wait_share is not None]
    return ProcessInfo(
        rss_bytes_p50=system.rss_bytes_p50,
        rss_bytes_max=system.rss_bytes_max,
        cpu_percent_mean=_tenth(system.process_cpu_percent_mean),
        num_threads_max=system.num_threads_max,
        read_bytes=system.read_bytes,
        write_bytes=system.write_bytes,
        waited_for_core_pct=_tenth(100 * max(waits)) if waits else None,
    )
