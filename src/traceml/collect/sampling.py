"""Takes one round of samples: the ranks' processes, the host, the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

from traceml.collect.host import HostSampler
from traceml.collect.processes import ProcessSampler, num_running_threads
from traceml.schema.records import MemoryReading, ProcessSample, RankState

if TYPE_CHECKING:
    from traceml.collect.devices import DeviceReader


class Sampling:
    """Samples a run's processes, host and devices from outside the training.

    Args:
        devices: Reads the accelerators.
        host: Reads the host.
    """

    def __init__(self, devices: DeviceReader, host: Optional[HostSampler] = None) -> None:
        self._devices = devices
        self._host = host or HostSampler()
        self._processes: dict[int, ProcessSampler] = {}

    def take(self, at_ns: int, ranks: Sequence[tuple[int, RankState]]) -> dict[str, Any]:
        """One round, as arguments for the store. About 1 ms.

        Args:
            at_ns: The records' clock.
            ranks: The living ranks: process and state.
        """
        samples, memory = [], []
        capacity_bytes = self._host.memory_limit_bytes()
        for pid, state in ranks:
            sampler = self._processes.setdefault(pid, ProcessSampler(pid))
            sample = sampler.sample(state.identity.rank, at_ns)
            if sample is None:
                continue
            samples.append(sample)
            if sample.rss_bytes is not None and state.identity.device == "cpu":
                memory.append(_rss(sample, state, capacity_bytes))
        runnable = None if self._host.sees_everybody else num_running_threads([pid for pid, _ in ranks])
        return {
            "processes": samples,
            "memory": memory,
            "host": [self._host.sample(at_ns, num_runnable=runnable)],
            "devices": self._devices.sample(at_ns, [state.identity for _, state in ranks]),
        }

    def close(self) -> None:
        """Lets the drivers go."""
        self._devices.close()


def _rss(sample: ProcessSample, state: RankState, capacity_bytes: Optional[int]) -> MemoryReading:
    assert sample.rss_bytes is not None
    return MemoryReading(
        rank=sample.rank,
        at_ns=sample.at_ns,
        step=state.last_step or 0,
        source="rss",
        allocated_bytes=sample.rss_bytes,
        capacity_bytes=capacity_bytes,
    )
