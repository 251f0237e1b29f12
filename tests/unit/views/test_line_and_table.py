"""Holds the one-line status and the list of runs to their promises."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from tests.unit.views.report_builders import CARDS, golden, report_of
from traceml.report.contract import EventInfo
from traceml.views.text.card import card
from traceml.views.text.columns import fit, to_ascii, width_of, wrap
from traceml.views.text.line import progress_line, verdict_line
from traceml.views.text.table import RunRow, runs_table

NOW = datetime(2027, 1, 15, 12, 0).astimezone().timestamp()
DAY = 86_400.0


def test_the_verdict_line_holds_the_sentence() -> None:
    assert verdict_line(golden("input_bound"), width=200) == (
        "TraceML: INPUT BOUND (critical): 44 % of each step waits for data: 35.6 of 81.0 ms."
    )


def test_the_verdict_line_of_a_killed_run_says_so_first() -> None:
    assert verdict_line(golden("killed")).startswith("TraceML: killed by SIGKILL; INPUT BOUND")


def test_the_progress_line_says_step_pace_and_verdict() -> None:
    line = progress_line(report_of(steps=1204, total_steps=5000), width=200)

    assert line.startswith("TraceML: step 1,204 of 5,000 | 74.0 ms a step | INPUT BOUND (critical), 44 %")


@pytest.mark.parametrize("name", CARDS)
def test_lines_are_one_line_of_at_most_80_columns(name: str) -> None:
    for line in (verdict_line(golden(name)), progress_line(golden(name))):
        assert width_of(line) <= 80
        assert "\n" not in line


def test_runs_are_listed_newest_first_with_time_today_and_date_before() -> None:
    rows = [
        RunRow("old", NOW - 30 * DAY, "completed", 5000, "INPUT_BOUND", 405.0),
        RunRow("new", NOW - 60, "running", 12, "INSUFFICIENT_DATA", 3.2),
    ]

    head, first, second = runs_table(rows, now=NOW).splitlines()

    assert head.split() == ["name", "started", "status", "steps", "verdict", "took"]
    assert first.split() == ["new", "11:59", "running", "12", "INSUFFICIENT", "DATA", "3.2", "s"]
    assert second.split() == ["old", "Dec", "2026", "completed", "5,000", "INPUT", "BOUND", "6", "min", "45", "s"]


def test_a_default_name_stays_whole_in_80_columns_with_a_usual_verdict() -> None:
    name = "train-20270115-115900-1a2b"

    table = runs_table([RunRow(name, NOW, "completed", 5000, "INPUT_BOUND", 405.0)], now=NOW)

    assert name in table
    assert max(width_of(line) for line in table.splitlines()) <= 80


def test_long_and_wide_names_are_cut_in_the_middle_and_columns_stay_aligned() -> None:
    rows = [
        RunRow("模型" * 30, NOW, "completed", 1, "BALANCED", 1.0),
        RunRow("b" * 90, NOW, "failed", 2, "BALANCED", 1.0),
    ]

    _, first, second = runs_table(rows, now=NOW).splitlines()

    assert width_of(first[: first.index("12:00")]) == width_of(second[: second.index("12:00")])
    assert max(width_of(first), width_of(second)) <= 80
    assert "…" in first


def test_a_run_that_cannot_be_read_says_why_in_its_place() -> None:
    table = runs_table([RunRow("broken", NOW, trouble="Run 'broken' has a damaged manifest.json")], now=NOW)

    assert table.splitlines()[1] == "broken        Run 'broken' has a damaged manifest.json"


def test_a_started_time_beyond_the_calendar_does_not_end_the_list() -> None:
    assert "?" in runs_table([RunRow("odd", 1e300, "completed", 1, "BALANCED", 1.0)], now=NOW)


def test_wrapping_keeps_a_number_and_its_unit_together() -> None:
    assert list(wrap("it took about 35.6 ms", 17)) == ["it took about", "35.6 ms"]
    assert list(wrap("in all 2 min 58 s", 12)) == ["in all", "2 min 58 s"]


def test_a_word_that_is_too_wide_is_broken_without_loss() -> None:
    assert "".join(wrap("a/very/long/path", 5)) == "a/very/long/path"


def test_fitting_keeps_both_ends_of_a_name() -> None:
    assert fit("train-20270115-115900-1a2b", 11) == "train…-1a2b"


def test_ascii_keeps_the_meaning_of_known_signs() -> None:
    assert to_ascii("a · b → 3 µs ≥ 訓") == "a | b -> 3 us >= ??"


def test_a_hang_is_the_line_and_stands_on_the_card_while_it_lasts() -> None:
    live: dict[str, Any] = {"rank": 2, "phase": "input", "since_s": 41.0, "step": 1204, "stall": "hang"}
    live["told"] = "rank 2 in input, asleep; ranks 0, 1 and 3 wait"
    report = report_of(status="running", ended_by="unknown", exit_code=None, steps=1203, live=live)
    said = "HANG: rank 2 in input, asleep since 41.0 s at step 1,204; ranks 0, 1 and 3 wait"

    assert progress_line(report) == f"TraceML: {said}"
    assert said in " ".join(card(report).split())
    waits = report_of(status="running", ended_by="unknown", exit_code=None, steps=1203, live={**live, "stall": "x"})
    assert progress_line(waits).startswith("TraceML: rank 2 in input")
    over = report_of(steps=1203, live=live)
    assert "asleep" not in card(over)


def test_who_died_first_is_told_before_the_others() -> None:
    events = (
        EventInfo("death", 41, 0, None, text="rank 0 failed with RuntimeError in waiting for ranks"),
        EventInfo("first death", 41, 2, None, text="rank 2 killed by SIGKILL in backward, 11.2 GiB held"),
        EventInfo("death", 41, 3, None, text="rank 3 failed with RuntimeError in waiting for ranks"),
    )
    words = " ".join(card(replace(report_of(steps=41), events=events)).split())

    assert "died first rank 2 killed by SIGKILL in backward, 11.2 GiB held, at step 41; then ranks 0 and 3" in words
    assert "RuntimeError" not in words
