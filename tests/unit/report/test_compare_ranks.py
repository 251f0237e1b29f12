"""Holds a comparison of several ranks to the rank and phase at fault: a rank that waits is not where the time went."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Sequence

import pytest

from tests.unit.report.compared_runs import BASE_MS, run_of
from traceml.report.compare.comparison import compare
from traceml.report.contract import RankRow, RanksInfo, Report
from traceml.views.text.comparison import comparison_card
from traceml.views.text.markdown import comparison_markdown

EVEN = {**BASE_MS, "sync": 1.0}
WAITS = {**BASE_MS, "sync": 9.0}
LATE = {**EVEN, "input": 16.0}


def ranked(ranks_ms: Sequence[Mapping[str, float]], *, median: int, worst: int, seed: int, at: int = 0) -> Report:
    """A run whose rows of ranks are these; its phases are the median rank's."""
    stamp = f"2027-01-15T08:{at:02d}:00+00:00"
    report = run_of(ranks_ms[median], seed=seed, world_size=len(ranks_ms), started_at=stamp)
    rows = tuple(RankRow(rank, 320, sum(ms.values()), ms) for rank, ms in enumerate(ranks_ms))
    return replace(report, step_time=replace(report.step_time, ranks=RanksInfo(median, worst, rows)))


def even(seed: int, at: int = 0) -> Report:
    return ranked([EVEN, EVEN], median=1, worst=0, seed=seed, at=at)


def late(seed: int, at: int = 0) -> Report:
    return ranked([WAITS, LATE], median=0, worst=1, seed=seed, at=at)


@pytest.mark.parametrize("repeats", [1, 4])
def test_a_rank_whose_own_work_grew_is_named_with_its_phase_and_not_the_wait_for_it(repeats: int) -> None:
    before = [even(seed, 2 * seed) for seed in range(repeats)]
    after = [late(10 + seed, 2 * seed + 1) for seed in range(repeats)]

    verdict = compare(before, after).verdict

    assert (verdict.diagnosis, verdict.phase, verdict.rank) == ("REGRESSION", "input", 1)
    assert ": rank 1 in input +8.0" in verdict.where
    assert "the others wait for it" in verdict.where
    assert verdict.next == "look at what changed in input of rank 1"


def test_a_rank_whose_own_work_shrank_is_named_for_the_gain() -> None:
    verdict = compare([late(1)], [even(2)]).verdict

    assert (verdict.diagnosis, verdict.phase, verdict.rank) == ("IMPROVEMENT", "input", 1)
    assert "rank 1 in input -8.0" in verdict.where
    assert "the others wait less for it" in verdict.where


def test_a_wait_that_grew_behind_no_rank_is_the_network() -> None:
    slow = {**EVEN, "sync": 9.0}

    verdict = compare([even(1)], [ranked([slow, slow], median=1, worst=0, seed=2)]).verdict

    assert (verdict.phase, verdict.rank) == ("sync", None)


def test_a_phase_that_grew_on_every_rank_is_no_single_ranks() -> None:
    verdict = compare([even(1)], [ranked([LATE, LATE], median=1, worst=0, seed=2)]).verdict

    assert (verdict.phase, verdict.rank) == ("input", None)


def test_a_wait_that_nobody_measured_still_leads_to_the_rank_behind_it() -> None:
    """Without `sync` the others' wait stands in their backward."""
    waits, slow = {**BASE_MS, "backward": 14.0}, {**BASE_MS, "input": 16.0}
    before = ranked([BASE_MS, BASE_MS], median=0, worst=1, seed=1)

    verdict = compare([before], [ranked([waits, slow], median=0, worst=1, seed=2)]).verdict

    assert (verdict.phase, verdict.rank) == ("input", 1)


def test_a_worst_rank_that_changes_from_run_to_run_is_not_named() -> None:
    before = [even(seed, 2 * seed) for seed in range(4)]
    turns = [([WAITS, LATE], 0, 1) if seed % 2 else ([LATE, WAITS], 1, 0) for seed in range(4)]
    after = [ranked(rows, median=m, worst=w, seed=10 + at, at=2 * at + 1) for at, (rows, m, w) in enumerate(turns)]

    assert compare(before, after).verdict.rank is None


def test_the_waterfall_is_the_median_ranks_and_says_so() -> None:
    found = compare([even(1)], [late(2)])

    assert [row.phase for row in found.phases if row.moved] == ["sync", "step"]
    assert any(line.split()[:3] == ["median", "rank", "before"] for line in comparison_card(found).splitlines())
    assert "| median rank | before |" in comparison_markdown(found)
