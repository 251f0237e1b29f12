"""Shows that one rank's speed is never told as if it were that of all, where groups go at paces of their own."""

from __future__ import annotations

from typing import Sequence

from tests.unit.views.report_builders import report_of
from traceml.report.contract import RankRow, RanksInfo, Report, ThroughputInfo
from traceml.views.text.card import card
from traceml.views.text.paces import groups_of, pace_in_words


def paced(*periods_ms: float | None) -> Report:
    rows: Sequence[RankRow] = [RankRow(rank, 100, period_ms, {}) for rank, period_ms in enumerate(periods_ms)]
    return report_of(
        ranks=RanksInfo(0, 1, tuple(rows)),
        throughput=ThroughputInfo(steps_per_s=40.0),
        world_size=len(periods_ms),
        steps=400,
    )


def said(report: Report) -> str:
    return " ".join(card(report).split())


def test_ranks_that_go_together_have_one_speed() -> None:
    report = paced(25.0, 25.1, 24.9, 26.0)

    assert groups_of(report) == []
    assert pace_in_words(report) == "40.0 steps/s"
    assert "up to" not in said(report)


def test_groups_have_a_speed_each_and_the_steps_are_those_of_the_farthest() -> None:
    report = paced(25.0, 100.0, 25.1, 100.5)

    assert [ranks for _, ranks in groups_of(report)] == [[0, 2], [1, 3]]
    assert pace_in_words(report) == "9.98 to 39.9 steps/s: ranks 0 and 2 39.9, ranks 1 and 3 9.98"
    assert pace_in_words(report, is_short=True) == "9.98 to 39.9 steps/s"
    assert "up to 400 steps" in said(report)
    assert "9.98 to 39.9 steps/s: ranks 0 and 2" in said(report)


def test_many_paces_are_told_by_their_span() -> None:
    assert pace_in_words(paced(10, 20, 40, 80, 160)) == "6.25 to 100 steps/s"


def test_just_below_a_quarter_apart_ranks_go_together() -> None:
    assert groups_of(paced(100.0, 124.9)) == []
    assert len(groups_of(paced(100.0, 125.1))) == 2


def test_ranks_without_steps_and_a_single_rank_say_nothing_of_groups() -> None:
    assert groups_of(paced(None, None)) == []
    assert groups_of(paced(25.0)) == []
    assert pace_in_words(report_of()) == ""
