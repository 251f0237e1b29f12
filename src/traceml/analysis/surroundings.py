"""Sums up the samples taken from outside: the host, the ranks' processes, their devices, their memory."""

from __future__ import annotations

from statistics import median
from typing import Final, Iterable, Optional, Sequence, TypeVar

from traceml.analysis.facts import MemoryFacts, SystemFacts
from traceml.schema.distribution import Distribution
from traceml.schema.records import DeviceSample, HostSample, MemoryReading, ProcessSample

Number = TypeVar("Number", int, float)

_NO_REASON: Final = ("idle", "none")  # an idle device runs slowly because it may


def system_of(
    *,
    host: Sequence[HostSample],
    processes: Sequence[ProcessSample],
    devices: Sequence[DeviceSample],
    steady_ns: Optional[tuple[int, int]] = None,
) -> SystemFacts:
    """The host and the run's processes over the samples; a value without a single sample is None.

    `steady_ns` is when the steady steps were: a device that is idle before them says nothing of them.
    """
    first_ns, last_ns = steady_ns or (0, -1)
    busy = _known(sample.busy_percent for sample in devices if first_ns <= sample.at_ns <= last_ns)
    cpu = _known(sample.cpu_percent for sample in host)
    throttled = [sample.throttled for sample in host if sample.throttled is not None]
    overrun = [s.num_runnable > s.num_cores for s in host if s.num_runnable is not None and s.num_cores is not None]
    reasons = [_slowing(sample.throttle_reasons) for sample in devices]
    rss = _rss_by_rank(processes)
    largest = max(rss.values(), key=median, default=[])
    return SystemFacts(
        num_samples=len(host),
        num_cores=_newest(sample.num_cores for sample in host),
        cpu_percent_mean=_mean(cpu),
        cpu_percent_max=max(cpu, default=None),
        throttled_share=_mean(throttled),
        overrun_share=_mean(overrun),
        memory_bytes_max=max(_known(sample.memory_bytes for sample in host), default=None),
        memory_limit_bytes=_newest(sample.memory_limit_bytes for sample in host),
        device_names=tuple(dict.fromkeys(sample.name or sample.uuid for sample in devices)),
        device_busy_percent_mean=_mean(_known(sample.busy_percent for sample in devices)),
        device_busy_percent_steady=_mean(busy),
        num_device_samples_steady=len(busy),
        device_throttled_share=_mean([bool(reason) for reason in reasons]),
        throttle_reasons=tuple(dict.fromkeys(reason for found in reasons for reason in found)),
        rss_bytes_p50=int(median(largest)) if largest else None,
        rss_bytes_max=max((max(values) for values in rss.values()), default=None),
        process_cpu_percent_mean=_sum_over_ranks(processes),
        num_threads_max=max(_known(sample.num_threads for sample in processes), default=None),
        read_bytes=_sum_of_counters((sample.rank, sample.read_bytes) for sample in processes),
        write_bytes=_sum_of_counters((sample.rank, sample.write_bytes) for sample in processes),
    )


def memory_of(
    readings: Sequence[MemoryReading], *, processes: Sequence[ProcessSample], host: Sequence[HostSample]
) -> tuple[MemoryFacts, ...]:
    """Each rank's memory: its accelerator's where there is one, else the process's own, by reading or from outside."""
    limit = _newest(sample.memory_limit_bytes for sample in host)
    outside = [
        MemoryReading(
            rank=s.rank, at_ns=s.at_ns, step=0, source="rss", allocated_bytes=s.rss_bytes, capacity_bytes=limit
        )
        for s in processes
        if s.rss_bytes is not None
    ]
    found = []
    for rank in sorted({reading.rank for reading in (*readings, *outside)}):
        own = [reading for reading in readings if reading.rank == rank]
        on_device = [reading for reading in own if reading.source != "rss"]
        found.append(_memory_facts(rank, on_device or own or [r for r in outside if r.rank == rank]))
    return tuple(found)


def _memory_facts(rank: int, readings: Sequence[MemoryReading]) -> MemoryFacts:
    reserved = _known(reading.reserved_bytes for reading in readings)
    peak = _known(reading.peak_bytes for reading in readings)
    return MemoryFacts(
        rank=rank,
        source=readings[-1].source,
        allocated=Distribution.of(reading.allocated_bytes for reading in readings),
        reserved=Distribution.of(reserved) if reserved else None,
        peak=Distribution.of(peak) if peak else None,
        capacity_bytes=_newest(reading.capacity_bytes for reading in readings),
        newest=readings[-1],
    )


def _slowing(reasons: Iterable[str]) -> list[str]:
    return [reason for reason in reasons if not any(word in reason.lower() for word in _NO_REASON)]


def _rss_by_rank(processes: Sequence[ProcessSample]) -> dict[int, list[int]]:
    by_rank: dict[int, list[int]] = {}
    for sample in processes:
        if sample.rss_bytes is not None:
            by_rank.setdefault(sample.rank, []).append(sample.rss_bytes)
    return by_rank


def _sum_over_ranks(processes: Sequence[ProcessSample]) -> Optional[float]:
    """Mean percent of one core of each rank, summed."""
    by_rank: dict[int, list[float]] = {}
    for sample in processes:
        if sample.cpu_percent is not None:
            by_rank.setdefault(sample.rank, []).append(sample.cpu_percent)
    return sum(sum(values) / len(values) for values in by_rank.values()) if by_rank else None


def _sum_of_counters(values: Iterable[tuple[int, Optional[int]]]) -> Optional[int]:
    """The newest, hence largest, value of each rank's counter, summed."""
    by_rank: dict[int, int] = {}
    for rank, value in values:
        if value is not None:
            by_rank[rank] = max(by_rank.get(rank, 0), value)
    return sum(by_rank.values()) if by_rank else None


def _known(values: Iterable[Optional[Number]]) -> list[Number]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> Optional[float]:
    return sum(values) / len(values) if values else None


def _newest(values: Iterable[Optional[Number]]) -> Optional[Number]:
    return next(reversed(_known(values)), None)
