"""Holds what `compare` says to what a person does next: no gain that is none, no false repeat, the phase at fault."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from tests.unit.report.compared_runs import run_of
from traceml.errors import UsageError
from traceml.report.compare.comparison import compare
from traceml.report.contract import Report

BASE = {"input": 12.0, "forward": 4.0, "backward": 4.0}


def stalled(seed: int) -> Report:
    """Seven of eight steps have a fast fetch, the eighth waits for what the others were spared."""
    rows = [1.0 if step % 8 else 3.333 for step in range(320)]
    return run_of({"input": 8.4, "forward": 3.4, "backward": 3.4}, seed=seed, factors=rows)


def test_a_faster_typical_step_whose_stalls_eat_the_gain_is_mixed() -> None:
    before, after = [run_of(BASE, seed=seed) for seed in range(4)], [stalled(seed) for seed in range(4, 8)]

    found = compare(before, after)

    assert found.verdict.diagnosis == "MIXED"
    assert not found.verdict.is_slower
    assert "but all steps together do not: rare long steps" in found.verdict.summary


def test_a_run_that_is_given_twice_is_no_repeat() -> None:
    run, other = run_of(BASE, seed=1, run_id="a"), run_of(BASE, seed=2, run_id="b")

    with pytest.raises(UsageError, match="'run-1' is given more than once"):
        compare([run, run], [other, run_of(BASE, seed=3, run_id="c")])

    assert compare([run], [other]).verdict.diagnosis


@pytest.mark.parametrize("run_id", ["a", ""])
def test_a_run_on_both_sides_is_refused_whatever_its_file_is_called(run_id: str) -> None:
    """One pasted name must not turn a gate green."""
    run, other = run_of(BASE, seed=1, run_id=run_id), run_of(BASE, seed=2, run_id="b")
    copied = replace(run, run=replace(run.run))

    for before, after in (([run], [copied]), ([other, run], [run_of(BASE, seed=3, run_id="c"), copied])):
        with pytest.raises(UsageError, match="'run-1' is on both sides"):
            compare(before, after)


def test_a_run_under_another_name_is_still_that_run() -> None:
    with pytest.raises(UsageError, match="'run-1', as 'run-2' too, is on both sides"):
        compare([run_of(BASE, seed=1, run_id="a")], [run_of(BASE, seed=2, run_id="a")])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_milliseconds_and_percent_say_the_same(size: int) -> None:
    before = [run_of(BASE, seed=seed, noise=0.2) for seed in range(size)]
    after = [run_of({**BASE, "input": 12.3}, seed=10 + seed, noise=0.2) for seed in range(size)]

    typical = compare(before, after).typical

    assert typical is not None
    assert math.isclose(typical.after_ms / typical.before_ms, 1 + typical.change_pct / 100, rel_tol=0.01)


@pytest.mark.parametrize(("input_ms", "noise"), [(12.0, 0.3), (11.8, 0.3), (9.0, 0.01), (16.0, 0.01), (95.0, 0.01)])
def test_a_sign_is_the_changes_own_in_every_sentence(input_ms: float, noise: float) -> None:
    """Minus is less time, in percent and in ms, and what is printed is what the JSON holds."""
    found = compare([run_of(BASE, seed=1, noise=noise)], [run_of({**BASE, "input": input_ms}, seed=2, noise=noise)])

    assert found.typical is not None
    low, high = found.typical.low_pct, found.typical.high_pct
    assert low is not None
    assert high is not None
    assert low < found.typical.change_pct < high
    told = re.findall(r"([-+][\d.,]+) %? ?to ([-+][\d.,]+)", f"{found.verdict.summary} {found.verdict.where}")
    step = found.phases[-1]
    of_percent = [] if found.typical.change_pct > 300 else [(low, high)]  # there it is said in times
    expected = [value for ends in (*of_percent, (step.low_ms, step.high_ms)) for value in ends]
    assert [float(text.replace(",", "")) for ends in told for text in ends] == pytest.approx(
        expected, rel=0.06, abs=0.06
    )


def test_many_times_the_length_is_said_in_times() -> None:
    verdict = compare([run_of(BASE, seed=1)], [run_of({**BASE, "input": 512.0}, seed=2)]).verdict

    assert verdict.summary.startswith("a typical step takes 26.0 times as long [25.")


def test_of_a_step_whose_time_moved_the_phase_that_takes_longer_is_looked_at() -> None:
    before = run_of({"input": 8.0, "forward": 6.0, "backward": 4.0}, seed=1)
    after = run_of({"input": 2.0, "forward": 12.0, "backward": 4.0}, seed=2)

    found = compare([before], [after])

    assert (found.verdict.diagnosis, found.verdict.phase) == ("MIXED", "forward")


def test_a_longer_wait_for_a_rank_leads_to_that_rank() -> None:
    usual = {"input": 8.0, "forward": 6.0, "backward": 4.0, "sync": 1.0}
    before, late = run_of(usual, seed=1, world_size=2), run_of({**usual, "sync": 31.0}, seed=2, world_size=2)
    verdict = replace(late.verdict, diagnosis="STRAGGLER", summary="Rank 1 is 30 ms behind.", next="see its data")

    found = compare([before], [replace(late, verdict=verdict)])

    assert found.verdict.phase == "sync"
    assert found.verdict.next == "Rank 1 is 30 ms behind. see its data"


def test_the_speed_of_repeats_is_that_of_the_step_beside_it() -> None:
    """Their steps are means, so a median of rates, or a mean, would tell another one."""
    lengths = (1.0, 1.0, 3.0)
    before = [run_of({name: ms * by for name, ms in BASE.items()}, seed=at) for at, by in enumerate(lengths)]

    found = compare(before, [run_of(BASE, seed=10 + at) for at in range(3)])

    rates = {row.name: row.before for row in found.quantities}
    step_ms = next(row.before_ms for row in found.phases if row.phase == "step")
    assert rates["steps_per_s"] == pytest.approx(1e3 / step_ms, rel=1e-3)
    assert rates["samples_per_s"] == pytest.approx(32e3 / step_ms, rel=1e-3)
