"""Holds the tail to its promise: a stretch that nobody can read costs that stretch, and is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge_script import EdgeScript
from traceml.analysis.steps import StepBuilder
from traceml.collect import tail as tail_room
from traceml.collect.tail import RingTail
from traceml.schema.records import RankIdentity
from traceml.wire.ring import PUBLISHED, EdgeBatch, RingWriter


def test_a_stretch_that_the_builder_cannot_read_is_lost_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = RingWriter(tmp_path / "1-0.ring", process_start_ns=int(99e9), anchor_ns=0, anchor_wall_ns=0)
    ring.send(RankIdentity(0, 0, 1, 1, int(99e9)))
    script = EdgeScript().iterator()
    for number in range(60):
        script.fetch(2).begin().work().end(numbered=number % 5 == 4)
    for position, (stamp, code) in enumerate(zip(script.stamps, script.codes)):
        ring.stamps[position], ring.codes[position] = stamp, code
    ring.header[PUBLISHED] = len(script.codes)
    monkeypatch.setattr(tail_room, "PORTION_EDGES", 150)
    fed, num_fed = StepBuilder.feed, 0

    def feed(self: StepBuilder, batch: EdgeBatch) -> None:
        nonlocal num_fed
        num_fed += 1
        if num_fed == 2:
            raise ValueError("nobody foresaw this")
        fed(self, batch)

    monkeypatch.setattr(StepBuilder, "feed", feed)
    tail = RingTail(ring.path, rank=0, cursors={})

    steps = [step.step for portion in tail.pump() for step in portion.taken.steps]

    assert steps[-1] == 60
    assert len(steps) + tail.state.num_lost_steps == 60
    assert tail.state.num_lost_edges == 150
    assert "nobody foresaw this" in capsys.readouterr().err
