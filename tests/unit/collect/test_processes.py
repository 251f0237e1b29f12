"""Tests what is seen of a process from outside, on real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from traceml.collect.processes import ProcessSampler

needs_schedstat = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel tells no waits")
SPINS = "import time\nend = time.monotonic() + 5\nwhile time.monotonic() < end: pass"


@needs_schedstat
def test_a_process_that_shares_its_core_is_seen_to_wait_for_it() -> None:
    core = {min(os.sched_getaffinity(0))}
    spinning = [subprocess.Popen([sys.executable, "-c", SPINS]) for _ in range(3)]
    try:
        for process in spinning:
            os.sched_setaffinity(process.pid, core)
        sampler = ProcessSampler(spinning[0].pid)
        first = sampler.sample(0, time.perf_counter_ns())
        time.sleep(1.0)
        last = sampler.sample(0, time.perf_counter_ns())
    finally:
        for process in spinning:
            process.kill()
            process.wait()

    assert first is not None
    assert last is not None
    assert first.run_delay_ns is not None
    assert last.run_delay_ns is not None
    assert last.run_delay_ns - first.run_delay_ns > 0.3 * (last.at_ns - first.at_ns)


@needs_schedstat
def test_a_process_that_sleeps_waits_for_no_core() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            time.sleep(0.5)
            sampler = ProcessSampler(process.pid)
            first = sampler.sample(0, time.perf_counter_ns())
            time.sleep(0.5)
            last = sampler.sample(0, time.perf_counter_ns())
        finally:
            process.kill()

    assert first is not None
    assert last is not None
    assert (last.run_delay_ns or 0) - (first.run_delay_ns or 0) < 0.05 * (last.at_ns - first.at_ns)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="what has ended and waits for its parent is left there"
)
def test_a_process_that_has_given_its_memory_back_has_none_that_is_known() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()  # until it has ended; nobody has asked how yet
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        sample = ProcessSampler(process.pid).sample(0, time.perf_counter_ns())

    assert sample is not None
    assert sample.rss_bytes is None
    assert sample.num_threads is not None
