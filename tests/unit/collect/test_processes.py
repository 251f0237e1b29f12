"""Tests what is seen of a process from outside, on real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.processes.running import until
from traceml.collect.processes import ProcessSampler, num_running_threads

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


def test_what_a_process_holds_is_what_psutil_says_of_it() -> None:
    own = psutil.Process()

    sample = ProcessSampler(own.pid).sample(0, time.perf_counter_ns())

    assert sample is not None
    assert sample.num_threads == own.num_threads()
    assert sample.rss_bytes == pytest.approx(own.memory_info().rss, rel=0.05)


def test_the_cpu_of_a_process_is_that_of_all_its_threads_in_its_own_time_and_the_kernels() -> None:
    sampler, begin_ns = ProcessSampler(os.getpid()), time.perf_counter_ns()
    sampler.sample(0, begin_ns)
    spent_s = time.process_time()
    while time.process_time() - spent_s < 0.5:
        os.stat("/")  # noqa: PTH116  # half of it is the kernel's
    at_ns = time.perf_counter_ns()
    spent_s = time.process_time() - spent_s

    sample = sampler.sample(0, at_ns)

    assert sample is not None
    assert sample.cpu_percent == pytest.approx(spent_s / (at_ns - begin_ns) * 1e11, rel=0.15)


def test_a_process_that_is_gone_has_no_sample() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    sampler = ProcessSampler(process.pid)
    process.wait()

    assert sampler.sample(0, time.perf_counter_ns()) is None


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc")
def test_of_the_threads_of_processes_those_that_run_are_counted() -> None:
    sleeps = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print(1, flush=True)"
    sleeper = subprocess.Popen([sys.executable, "-c", sleeps], stdout=subprocess.PIPE)
    spinner = subprocess.Popen([sys.executable, "-c", "print(1, flush=True)\n" + SPINS], stdout=subprocess.PIPE)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for process in (sleeper, spinner):
        assert process.stdout is not None
        process.stdout.readline()

    assert until(lambda: num_running_threads([sleeper.pid]) == 0)
    assert num_running_threads([sleeper.pid, spinner.pid, gone.pid]) == 1
    assert num_running_threads([gone.pid]) is None
    for process in (sleeper, spinner):
        process.kill()
        process.communicate()
