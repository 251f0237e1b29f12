"""Tests how samples from outside are summed up."""

from __future__ import annotations

import pytest

from tests.builders import facts_of_steps, host_samples, step_ms
from traceml.schema.records import DeviceSample, HostSample, MemoryReading, ProcessSample

STEPS = [step_ms(forward=1)]


def test_without_samples_every_value_is_unknown() -> None:
    system = facts_of_steps(STEPS).system

    assert system.num_samples == 0
    assert system.cpu_percent_mean is None
    assert system.throttled_share is None
    assert system.device_throttled_share is None
    assert system.rss_bytes_max is None


def test_the_host_is_summed_up() -> None:
    host = [
        HostSample(at_ns=0, num_cores=2.0, cpu_percent=20.0, num_runnable=1.0, throttled=False, memory_bytes=5),
        HostSample(at_ns=1, num_cores=2.0, cpu_percent=60.0, num_runnable=3.0, throttled=True, memory_bytes=7),
    ]

    system = facts_of_steps(STEPS, host=host).system

    assert (system.num_samples, system.num_cores, system.cpu_percent_mean, system.cpu_percent_max) == (2, 2.0, 40, 60)
    assert (system.throttled_share, system.overrun_share, system.memory_bytes_max) == (0.5, 0.5, 7)


def test_as_many_tasks_as_cores_are_no_overrun() -> None:
    assert facts_of_steps(STEPS, host=host_samples(num_cores=2.0, num_runnable=2.0)).system.overrun_share == 0


def test_an_idle_device_is_not_throttled() -> None:
    devices = [
        DeviceSample(at_ns=0, uuid="a", name="H200", busy_percent=10.0, throttle_reasons=("gpu_idle",)),
        DeviceSample(at_ns=1, uuid="a", name="H200", busy_percent=30.0, throttle_reasons=("sw_thermal_slowdown",)),
    ]

    system = facts_of_steps(STEPS, devices=devices).system

    assert system.device_throttled_share == 0.5
    assert system.throttle_reasons == ("sw_thermal_slowdown",)
    assert (system.device_names, system.device_busy_percent_mean) == (("H200",), 20.0)


def test_processes_are_summed_over_ranks_and_the_largest_speaks_for_memory() -> None:
    processes = [
        ProcessSample(rank=0, at_ns=0, rss_bytes=100, cpu_percent=50.0, num_threads=3, read_bytes=10),
        ProcessSample(rank=0, at_ns=1, rss_bytes=300, cpu_percent=70.0, num_threads=5, read_bytes=30),
        ProcessSample(rank=1, at_ns=1, rss_bytes=50, cpu_percent=40.0, num_threads=2, read_bytes=5),
    ]

    system = facts_of_steps(STEPS, processes=processes).system

    assert (system.rss_bytes_p50, system.rss_bytes_max) == (200, 300)
    assert system.process_cpu_percent_mean == pytest.approx(100.0)
    assert (system.num_threads_max, system.read_bytes, system.write_bytes) == (5, 35, None)


def test_memory_is_the_accelerators_where_there_is_one() -> None:
    readings = [
        MemoryReading(rank=0, at_ns=0, step=1, source="rss", allocated_bytes=9),
        MemoryReading(rank=0, at_ns=1, step=1, source="cuda", allocated_bytes=5, peak_bytes=8, capacity_bytes=80),
        MemoryReading(rank=0, at_ns=2, step=2, source="cuda", allocated_bytes=7, peak_bytes=9),
    ]

    (memory,) = facts_of_steps(STEPS, memory=readings).memory

    assert (memory.source, memory.allocated.maximum, memory.capacity_bytes) == ("cuda", 7, 80)
    assert memory.peak is not None
    assert memory.peak.maximum == 9
    assert memory.reserved is None
    assert memory.newest == readings[-1]


def test_memory_of_a_process_stands_in_where_no_accelerator_is() -> None:
    processes = [ProcessSample(rank=0, at_ns=1, rss_bytes=7), ProcessSample(rank=0, at_ns=2, rss_bytes=9)]

    (memory,) = facts_of_steps(STEPS, processes=processes, host=host_samples(2, memory_limit_bytes=64)).memory

    assert (memory.source, memory.allocated.count, memory.allocated.maximum, memory.capacity_bytes) == ("rss", 2, 9, 64)


def test_memory_that_nobody_read_is_no_memory() -> None:
    assert facts_of_steps(STEPS, processes=[ProcessSample(rank=0, at_ns=1)]).memory == ()
