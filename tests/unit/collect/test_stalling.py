"""Shows what a rank that sleeps is taken for: one that hangs, or one for which something else works."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import Any, Sequence, cast

import pytest

from tests.builders import step_ms
from traceml.collect import stalling
from traceml.collect.life import Life
from traceml.collect.processes import Work, has_started, waits_for_disk, work_below
from traceml.collect.stalling import Stalling
from traceml.schema import phases
from traceml.schema.records import Event, LiveSlot, ProcessSample, RankEnd, RankIdentity, RankState
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


class World:
    """Two ranks that sleep: rank 0 is waited for by rank 1 in a barrier."""

    def __init__(self) -> None:
        self.life = Life(lambda: 0)
        self.life.watch(os.getpid())
        self.tails = [Tail(RankState(RankIdentity(rank, rank, 2, os.getpid(), 0)), os.getpid()) for rank in (0, 1)]
        self.watch, self.now_s, self.step = Stalling(), 1000.0, 500

    def look(self, *slots: LiveSlot) -> list[Event]:
        now_ns = round(self.now_s * S)
        self.watch.sampled({"processes": [ProcessSample(0, now_ns, MB, 0.1)]})
        return self.watch.look(slots, cast("Any", self.tails), self.life, now_ns=now_ns)

    def slots(self, phase: str, since_s: float, waits: str = phases.SYNC) -> tuple[LiveSlot, LiveSlot]:
        since_ns, now_ns = round(since_s * S), round(self.now_s * S)
        return (
            LiveSlot(0, self.step, phase, since_ns, now_ns, alive=True),
            LiveSlot(1, self.step, waits, since_ns, now_ns, alive=True, by_script=True),
        )

    def pause(self, length_s: float, phase: str = phases.BETWEEN_STEPS) -> list[Event]:
        """Rank 0 pauses while rank 1 waits for it, and then both go on; what is told, once a second."""
        told, since_s = [], self.now_s
        while self.now_s < since_s + length_s:
            told += self.look(*self.slots(phase, since_s))
            self.now_s += 1.0
        self.step += 1
        told += self.look(*self.slots(phases.FORWARD, since_s + length_s, phases.FORWARD))
        self.now_s += 60
        return told


def test_an_event_lasts_as_long_as_the_pause_and_not_until_it_was_noticed() -> None:
    told = World().pause(8.25)

    assert [event.kind for event in told] == [HANG, HANG]
    assert told[-1].duration_ns == round(8.25 * S)


def test_the_end_of_the_first_step_behind_a_pause_ends_it_where_the_rank_has_long_gone_on() -> None:
    world, since_s = World(), 1000.0
    for _ in range(8):
        world.look(*world.slots(phases.BETWEEN_STEPS, since_s))
        world.now_s += 1.0
    ends_s = (999.9, 1007.3, 1007.4, 1007.9)
    world.watch.feed([step_ms(step=500 + at)._replace(end_ns=round(end_s * S)) for at, end_s in enumerate(ends_s)])
    (event,) = world.look(*world.slots(phases.FORWARD, 1007.95, phases.FORWARD))

    assert event.duration_ns == round(7.3 * S)


def test_a_pause_like_one_that_a_rank_has_come_back_from_is_no_alarm_and_one_that_is_longer_by_far_is() -> None:
    world = World()
    kinds = [[event.kind for event in world.pause(length_s)] for length_s in (9, 9, 12, 40)]

    assert kinds[:3] == [[HANG, HANG], [WAIT, WAIT], [WAIT, WAIT]]
    assert set(kinds[3]) == {WAIT, HANG}


def test_a_pause_in_the_forward_teaches_nothing() -> None:
    world = World()

    assert [[event.kind for event in world.pause(9, phases.FORWARD)] for _ in range(2)] == [[HANG, HANG]] * 2


def test_a_hang_that_ends_with_the_rank_keeps_its_words_and_ends_when_the_rank_died() -> None:
    world, since_s = World(), 1000.0
    for _ in range(8):
        world.look(*world.slots(phases.INPUT, since_s))
        world.now_s += 1.0
    ended = replace(world.tails[0].state, end=RankEnd(0, "exception", "KeyboardInterrupt", round(1007.4 * S)))
    world.tails[0] = replace(world.tails[0], state=ended)
    told = world.look(*world.slots(phases.INPUT, since_s))
    world.now_s += 1.0
    told += world.look(*world.slots(phases.INPUT, since_s))

    assert [(event.kind, event.text) for event in told] == [(HANG, "rank 0 in input, asleep; rank 1 waits")]
    assert told[0].duration_ns == round(7.4 * S)


def test_a_child_that_sleeps_is_what_a_rank_waits_for_where_it_was_started_in_the_pause() -> None:
    before_ns = time.perf_counter_ns()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            time.sleep(0.3)
            started = has_started(os.getpid(), since_ns=before_ns)
            is_older = not has_started(os.getpid(), since_ns=time.perf_counter_ns() - S // 10)
        finally:
            process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        is_zombie = not has_started(os.getpid(), since_ns=before_ns)

    assert (started, is_older, is_zombie) == (True, True, True)


def test_a_rank_whose_child_sleeps_is_waited_for_between_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalling, "has_started", lambda _, since_ns: since_ns == START_NS)
    told = World().pause(9)

    assert [event.kind for event in told] == [WAIT, WAIT]
    assert told[-1].text == "rank 0 in between steps, asleep while a process that it started runs; rank 1 waits"


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
