"""Reads a ring's device times back, plainly, and divides a step by them: what the tests hold the recorder to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator

from traceml.schema import phases
from traceml.wire import edges
from traceml.wire.ring import EdgeBatch

_INDEX = (1 << edges.DEVICE_BITS) - 1


@dataclass
class DeviceTimes:
    """What the value entries say. `ms` by edge: since the origin of its chain; edges of one chain have one number."""

    codes: bytes
    stamps: list[float]
    ms: dict[int, float] = field(default_factory=dict)
    chain: dict[int, int] = field(default_factory=dict)
    device: dict[int, int] = field(default_factory=dict)
    num_lost: int = 0
    polls: list[tuple[int, int, bool]] = field(default_factory=list)  # index of the entry, of the edge, done
    peaks: list[tuple[int, int]] = field(default_factory=list)  # code, bytes

    def codes_timed(self) -> list[int]:
        return [self.codes[index] for index in sorted(self.ms)]

    def steps(self) -> Iterator[dict[str, float]]:  # noqa: C901  # one walk along the edges
        """Device ms by phase of each step of which both ends are known: its device period, divided."""
        stack: list[str] = []
        top, before, since = phases.BETWEEN_STEPS, None, None
        acc: dict[str, float] = {}
        in_step = False
        for index, code in enumerate(self.codes):
            if index in self.ms:
                if before is not None and self.chain[before] == self.chain[index]:
                    acc[top] = acc.get(top, 0.0) + self.ms[index] - self.ms[before]
                before = index
            if code in edges.PHASE_OF:
                stack.append(edges.PHASE_OF[code])
            elif code - edges.CLOSE in edges.PHASE_OF or code == edges.CLOSE_NO_BATCH:
                stack.pop()
            elif code == edges.UNWOUND:
                stack.clear()
            elif code == edges.STEP_BEGIN:
                in_step = True
            elif code in (edges.STEP_END, edges.STEP_FAILED):
                in_step = False
                if since is not None and since in self.ms and index in self.ms:
                    yield acc
                acc, since = {}, index
            if index in self.ms:
                top = stack[-1] if stack else phases.IN_STEP if in_step else phases.BETWEEN_STEPS


def device_times(batch: EdgeBatch) -> DeviceTimes:
    """Decodes a whole ring."""
    assert batch.position == 0
    found = DeviceTimes(batch.codes, list(batch.stamps))
    at, device, num_chains, origin_ms = -1, -1, 0, 0.0
    for index, (code, stamp) in enumerate(zip(batch.codes, batch.stamps)):
        if code < edges.FIRST_VALUE:
            continue
        number = int(stamp)
        if code == edges.DEVICE_FROM:
            device, at = number >> edges.DEVICE_BITS, number & _INDEX
            if at not in found.ms:
                num_chains += 1
                found.ms[at], found.chain[at], found.device[at] = 0.0, num_chains, device
            origin_ms = found.ms[at]
        elif code == edges.DEVICE_AT:
            before, at = at, at + (number >> edges.TIME_BITS)
            units = (number & ((1 << edges.TIME_BITS) - 1)) - edges.TIME_BIAS
            origin_ms += units * edges.TIME_UNIT_NS / 1e6
            found.ms[at], found.chain[at], found.device[at] = origin_ms, found.chain[before], device
        elif code == edges.DEVICE_LOST:
            found.num_lost += number
        elif code in (edges.DEVICE_READY, edges.DEVICE_PENDING):
            found.polls.append((index, number, code == edges.DEVICE_READY))
        elif code in (edges.STEP_PEAK, edges.STEP_PEAK_RESERVED):
            found.peaks.append((code, number))
    return found
