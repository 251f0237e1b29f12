"""Tests what the host may do for a run, read from cgroup files of both versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping

from traceml.collect.host import HostSampler, Roots

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
MEMINFO = "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\n"
STAT = (
    "cpu  0 0 0 0 0 0 0 0\n"
    "cpu0 {} 0 0 0 0 0 0 0 0\n"
    "cpu1 {} 0 0 9 9 0 0 0 0\n"
    "cpu2 9999 0 0 0 0 0 0 0 0\n"
    "procs_running 5\n"
)


def host(tmp_path: Path, files: Mapping[str, str], *, allowed: frozenset[int] = frozenset({0, 1})) -> HostSampler:
    put(tmp_path, {"proc/meminfo": MEMINFO, "proc/stat": STAT.format(0, 0), **files})
    return HostSampler(Roots(tmp_path / "proc", tmp_path / "cgroup"), allowed=allowed, num_cores=4)


def put(tmp_path: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


V2 = {
    "proc/self/cgroup": "0::/job/step\n",
    "cgroup/cgroup.controllers": "cpu memory\n",
    "cgroup/job/cpu.max": "150000 100000\n",
    "cgroup/job/memory.max": f"{8 * GIB}\n",
    "cgroup/job/step/cpu.max": "max 100000\n",
    "cgroup/job/step/memory.max": "max\n",
    "cgroup/job/step/memory.current": f"{3 * GIB}\n",
    "cgroup/job/step/memory.stat": f"inactive_file {GIB}\n",
    "cgroup/job/step/cpu.stat": "usage_usec 0\nnr_throttled 0\n",
}
V1 = {
    "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n",
    "cgroup/cpu/job/cpu.cfs_quota_us": "150000\n",
    "cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
    "cgroup/cpu/job/cpu.stat": "nr_periods 3\nnr_throttled 0\n",
    "cgroup/cpuacct/job/cpuacct.usage": "0\n",
    "cgroup/memory/job/memory.limit_in_bytes": f"{8 * GIB}\n",
    "cgroup/memory/job/memory.usage_in_bytes": f"{3 * GIB}\n",
    "cgroup/memory/job/memory.stat": f"total_inactive_file {GIB}\n",
    "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
}


def test_a_v2_quota_and_limit_above_our_own_cgroup_count(tmp_path: Path) -> None:
    sample = host(tmp_path, V2).sample(0)

    assert (sample.num_cores, sample.memory_limit_bytes, sample.memory_bytes) == (1.5, 8 * GIB, 2 * GIB)


def test_a_v1_quota_and_limit_count_alike(tmp_path: Path) -> None:
    sample = host(tmp_path, V1).sample(0)

    assert (sample.num_cores, sample.memory_limit_bytes, sample.memory_bytes) == (1.5, 8 * GIB, 2 * GIB)


def test_with_a_quota_cpu_is_the_cgroups_own(tmp_path: Path) -> None:
    sampler = host(tmp_path, V2)
    sampler.sample(0)
    put(tmp_path, {"cgroup/job/step/cpu.stat": "usage_usec 750000\nnr_throttled 0\n"})

    assert sampler.sample(1_000_000_000).cpu_percent == 50.0


def test_throttling_is_told_from_one_sample_to_the_next(tmp_path: Path) -> None:
    sampler = host(tmp_path, V1)
    told = [sampler.sample(0).throttled, sampler.sample(1).throttled]
    put(tmp_path, {"cgroup/cpu/job/cpu.stat": "nr_throttled 2\n"})
    told += [sampler.sample(2).throttled, sampler.sample(3).throttled]

    assert told == [None, False, True, False]


def test_without_a_quota_cpu_is_that_of_the_allowed_cores(tmp_path: Path) -> None:
    sampler = host(tmp_path, {})
    sampler.sample(0)
    put(tmp_path, {"proc/stat": STAT.format(100, 0)})
    sample = sampler.sample(1_000_000_000)

    assert (sample.num_cores, sample.cpu_percent) == (2.0, 50.0)


def test_where_others_share_the_machine_their_run_queue_is_not_ours(tmp_path: Path) -> None:
    sample = host(tmp_path, {}).sample(0, num_runnable=1.0)

    assert sample.num_runnable == 1.0


def test_alone_on_the_machine_the_run_queue_counts_without_us(tmp_path: Path) -> None:
    sample = host(tmp_path, {}, allowed=frozenset({0, 1, 2, 3})).sample(0)

    assert sample.num_runnable == 4.0


def test_without_a_cgroup_the_machines_memory_is_the_limit(tmp_path: Path) -> None:
    sample = host(tmp_path, {}).sample(0)

    assert (sample.memory_limit_bytes, sample.memory_bytes, sample.throttled) == (64 * GIB, 32 * GIB, None)
