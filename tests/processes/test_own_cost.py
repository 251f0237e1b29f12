"""Shows a run that bills itself, and gives up what costs too much, from the loop to the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.processes import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.long]
BURNING = str(running.SCRIPTS / "burning.py")


def test_a_slow_look_into_batches_is_given_up_and_the_summary_says_since_when(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "quick").mkdir()
    # The larger burn: on a busy machine a step takes several ms, of which 80 us may be less than the budget.
    slow = running.run(tmp_path / "slow", BURNING, "400")
    quick = running.run(tmp_path / "quick", BURNING, "0", environ=running.environment(TRACEML_OVERHEAD_BUDGET_PCT="99"))

    loss, num_looks = slow.stdout.split()
    assert quick.stdout.split() == [loss, b"2400"]
    (gone,) = (event for event in slow.summary["events"] if event["kind"] == "given up")
    assert gone["text"] == "counting samples and tokens"
    assert int(num_looks) <= gone["step"] + 1 < 2400
    (note,) = (note for note in slow.summary["coverage"]["notes"] if "given up" in note)
    assert note.startswith(f"counting samples and tokens given up at step {gone['step']:,}: tracing took ")
    assert f"given up at step {gone['step']:,}" in " ".join(slow.stderr.split())
    assert slow.summary["throughput"]["samples_per_s"] is None
    assert slow.summary["run"]["steps"] == 2400
    assert not slow.summary["coverage"]["faults"]

    overhead = quick.summary["overhead"]
    assert 0 < overhead["us_per_step"] < quick.summary["step_time"]["period_ms"]["mean"] * 1000
    assert quick.summary["throughput"]["samples_per_s"] > 0
    assert " · tracing " in quick.stderr
    assert not [event for event in quick.summary["events"] if event["kind"] == "given up"]
