"""Loops on a simulated device, and how their records read."""

from __future__ import annotations

from typing import Any, Optional

from tests.device_script import DeviceScript
from traceml.schema import phases
from traceml.schema.records import StepRecord
from traceml.wire import edges

MS = 1_000_000


def on_device(record: StepRecord, phase: str) -> Optional[float]:
    """A phase's ms on the device's clock."""
    assert record.device is not None
    found = record.device.phase_ns[phases.PHASE_INDEX[phase]]
    return None if found is None else round(found / MS, 1)


def adds_up(record: StepRecord) -> bool:
    assert record.device is not None
    times = [ns for ns in record.device.phase_ns if ns is not None] + [ns for _, ns in record.device.region_ns]
    return sum(times) == record.device.period_ns


def blocking_step(script: DeviceScript, *, wait: float = 0.2) -> DeviceScript:
    """Public case S6: the host queues all, and waits in `.item()`."""
    script.fetch(wait)
    script.begin()
    script.does(edges.FORWARD, host=0.1, device=5.2)
    script.does(edges.BACKWARD, host=0.1, device=9.5)
    script.does(edges.OPTIMIZER, host=0.1, device=2.3)
    script.item().end()
    return script


def queued_step(
    script: DeviceScript, *, device: float = 10.0, host: float = 1.0, wait: float = 0.2, depth: int = 4
) -> DeviceScript:
    """The host only queues; it is held back by nothing here."""
    script.fetch(wait)
    script.begin()
    script.does(edges.FORWARD, host=host, device=device * 0.3)
    script.does(edges.BACKWARD, host=host, device=device * 0.6)
    script.does(edges.OPTIMIZER, host=host, device=device * 0.1)
    script.end()
    return script.holds_back(depth)


def a_loop(script: DeviceScript, num_steps: int, **how: Any) -> DeviceScript:
    script.iterator()
    for _ in range(num_steps):
        queued_step(script, **how)
    return script
