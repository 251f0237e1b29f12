"""Tests what a running run's report says of now, and how an older report is brought to this moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.report.store_fakes import MANIFEST, SECOND, FakeStore, state_of, step_ms
from traceml.report.build import build_report
from traceml.report.contract import Report
from traceml.report.live import refreshed
from traceml.schema.current import Current
from traceml.schema.records import DeviceSample, HostSample, LiveSlot, RankEnd

WALL_S = 1_800_000_030.0


def slot(rank: int = 0, *, step: int = 101, alive: bool = True, **more: Any) -> LiveSlot:
    return LiveSlot(
        **{"rank": rank, "step": step, "phase": "input", "since_ns": 29 * SECOND, "read_ns": 30 * SECOND, **more},
        alive=alive,
    )


def running(**store: Any) -> Report:
    steps = [step_ms(n, input=10.0, forward=20.0) for n in range(1, 101)]
    fake = FakeStore(steps, **{"ended": None, "slots": [slot()], **store})
    return build_report(fake, MANIFEST, now_wall=WALL_S, now_ns=30 * SECOND)


def test_a_rank_that_is_gone_without_a_goodbye_is_lost_at_its_step() -> None:
    ranks = [state_of(rank, world_size=3) for rank in range(3)]
    ranks[2] = replace(ranks[2], end=RankEnd(2, "end"))
    slots = [slot(0), slot(1, step=57, alive=False), slot(2, alive=False)]

    live = running(ranks=ranks, slots=slots).run.live or {}

    assert live["lost"] == [[1, 57]]


def test_the_newest_look_at_host_and_devices_is_told() -> None:
    host = [HostSample(28 * SECOND, cpu_percent=10.0), HostSample(29 * SECOND, num_cores=16.0, cpu_percent=38.0)]
    devices = [DeviceSample(at * SECOND, uuid, "GPU", busy_percent=at) for at in (28, 29) for uuid in ("a", "b")]

    live = running(all_host=host, all_devices=devices).run.live or {}

    assert live["host"] == {"num_cores": 16.0, "cpu_percent": 38.0}
    assert [device["busy_percent"] for device in live["devices"]] == [29.0, 29.0]


def test_an_older_report_is_brought_to_this_moment_and_its_figures_stay() -> None:
    old = running()
    state = replace(state_of(), last_step=160, user_step=5160, total_steps=1000)
    current = Current((slot(step=161, phase="forward", since_ns=41 * SECOND),), (state,))

    new = refreshed(old, current, now_wall=WALL_S + 12, now_ns=42 * SECOND)

    assert (new.run.steps, new.run.last_step, new.run.user_step, new.run.total_steps) == (160, 160, 5160, 1000)
    assert new.run.duration_s == old.run.duration_s + 12
    assert new.run.live == {"rank": 0, "phase": "forward", "since_s": 1.0, "step": 161}
    assert (new.verdict, new.step_time) == (old.verdict, old.step_time)
