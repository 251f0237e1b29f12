"""Shows what a rank that sleeps is taken for: one that hangs, or one for which something else works."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Sequence, cast

import pytest

from traceml.collect import stalling
from traceml.collect.life import Life
from traceml.collect.processes import Work, waits_for_disk, work_below
from traceml.collect.stalling import Stalling
from traceml.schema import phases
from traceml.schema.records import LiveSlot, ProcessSample, RankIdentity, RankState
from traceml.schema.stalls import HANG, WAIT

S = 1_000_000_000
START_NS = 1000 * S
MB = 1 << 20


@dataclass(frozen=True)
class Tail:
    """What is asked of a ring here."""

    state: RankState
    pid: int


def seconds(*, below: Sequence[Work], phase: str = phases.INPUT, disk: bool = False, patch: Any) -> list[str]:
    """Of each second from the fourth on the kind of stall, empty for none.

    Rank 0 sleeps in a phase, and rank 1 waits for it; `below` is what the processes of rank 0 had used by each second.
    """
    life = Life(lambda: 0)
    life.watch(os.getpid())
    tails = cast("Any", [Tail(RankState(RankIdentity(rank, rank, 2, os.getpid(), 0)), os.getpid()) for rank in (0, 1)])
    watch, used = Stalling(), iter(below)
    patch.setattr(stalling, "work_below", lambda _: next(used))
    patch.setattr(stalling, "waits_for_disk", lambda _: disk)
    kinds = []
    for second in range(len(below) + 2):
        now_ns = START_NS + second * S
        watch.sampled({"processes": [ProcessSample(0, now_ns, MB, 100.0 if second < 1 else 0.1)]})
        slots = [
            LiveSlot(0, 500, phase, START_NS, now_ns, alive=True),
            LiveSlot(1, 500, phases.SYNC, START_NS, now_ns, alive=True),
        ]
        watch.look(slots, tails, life, now_ns=now_ns)
        kinds.append(watch.marked(slots)[0].stall)
    return kinds[4:]


def test_a_rank_that_sleeps_while_nothing_works_for_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds(below=[Work(3.0, 0)] * 7, patch=monkeypatch) == ["", HANG, HANG, HANG, HANG]


@pytest.mark.parametrize("phase", [phases.INPUT, phases.BETWEEN_STEPS, phases.REGION_PREFIX + "validate"])
def test_a_rank_whose_workers_work_is_waited_for(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    below = [Work(0.4 * second, 0) for second in range(7)]

    assert seconds(below=below, phase=phase, patch=monkeypatch) == ["", WAIT, WAIT, WAIT, WAIT]


def test_work_in_bursts_is_work_and_once_it_is_over_the_rank_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    below = [Work(spent, 0) for spent in (0, 1, 1, 1, 2, 2, 2, 2, 2, 2)]

    found = seconds(below=below, patch=monkeypatch)

    assert found == ["", WAIT, WAIT, WAIT, WAIT, HANG, HANG, HANG]


def test_what_those_below_write_is_work_and_what_a_logger_writes_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    upload, log = ([Work(0.0, a_second * second) for second in range(7)] for a_second in (5 * MB, 2_000))

    assert seconds(below=upload, phase=phases.BETWEEN_STEPS, patch=monkeypatch)[1] == WAIT
    assert seconds(below=log, phase=phases.BETWEEN_STEPS, patch=monkeypatch)[1] == HANG


def test_a_rank_that_waits_for_its_storage_works(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds(below=[Work(0.0, 0)] * 7, phase=phases.BETWEEN_STEPS, disk=True, patch=monkeypatch)[1] == WAIT


def test_a_rank_that_sleeps_in_its_forward_hangs_whoever_works_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    below = [Work(1.0 * second, 0) for second in range(7)]

    assert seconds(below=below, phase=phases.FORWARD, patch=monkeypatch)[1] == HANG


def test_the_work_of_a_child_that_has_ended_is_not_forgotten() -> None:
    busy = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    script = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {busy!r}]); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            deadline, found = time.monotonic() + 30, Work(0.0, 0)
            while time.monotonic() < deadline and found.cpu_s < 0.3:
                time.sleep(0.1)
                before, found = found, work_below(process.pid)
                assert found.cpu_s >= before.cpu_s - 0.05  # a tick of the clock
            time.sleep(0.5)
            after = work_below(process.pid)
            is_at_disk = waits_for_disk(process.pid)
        finally:
            process.kill()

    assert after.cpu_s >= 0.29
    assert not is_at_disk
