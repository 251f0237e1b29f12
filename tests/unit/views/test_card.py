"""Holds the card to its promises: golden cards, 80 columns, clean names, words for every end."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.views.report_builders import CARDS, INPUT_BOUND, golden, phase_rows, report_of
from traceml.report.contract import CoverageInfo, EventInfo, FaultInfo, FindingInfo, ImpactInfo, ProcessInfo
from traceml.views.text.card import card
from traceml.views.text.columns import width_of

GOLDEN = Path(__file__).parent / "cards"


@pytest.mark.parametrize("name", CARDS)
def test_the_card_is_the_golden_one(name: str) -> None:
    assert card(golden(name)) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CARDS)
def test_no_line_of_a_card_is_wider_than_80_columns(name: str) -> None:
    for text in (card(golden(name)), card(golden(name), ascii_only=True)):
        assert max(width_of(line) for line in text.splitlines()) <= 80


@given(st.text(max_size=200), st.integers(60, 120))
@example("训练" * 40, 80)
@example("\x1b[31mred\x1b]0;title\x07", 80)
@example("e\u0301" * 100, 80)
def test_no_name_breaks_the_columns_or_reaches_the_terminal_raw(name: str, width: int) -> None:
    verdict = replace(INPUT_BOUND, next=name, why=name)
    report = report_of(
        verdict=verdict,
        mean_ms={"input": 3.0, f"region:{name}": 2.0},
        events=(EventInfo(name, 3, 0, 5.0, 2, name),),
        notes=(name,),
        name=name,
        folder=f"logs/{name}",
        status="failed",
        exception=name,
    )

    text = card(report, width=width)

    assert max(width_of(line) for line in text.splitlines()[:-1]) <= width  # the last one is a path
    assert all(ch.isprintable() for ch in text if ch != "\n")
    assert "\x1b" not in text


def test_a_path_that_does_not_fit_has_a_line_of_its_own_and_is_never_broken() -> None:
    folder = "/scratch/a folder  of/" + "run-" * 30

    lines = card(report_of(folder=folder)).splitlines()

    assert lines[-2:] == ["      files", f"  {folder}/final_summary.json"]


def test_regions_with_the_names_of_phases_without_one_or_with_a_long_one_can_be_told_apart() -> None:
    names = ("forward", "other", "", "augment", "x" * 300 + "end")
    mean_ms = {"forward": 10.0, **{f"region:{name}": 10.0 for name in names}, "gc": 0.1}

    rows = [line[6:30].rstrip() for line in card(report_of(mean_ms=mean_ms)).splitlines() if "ms  " in line]

    labels = [row.split("  ")[0] for row in rows]
    assert labels == [
        "forward", "region forward", "region other", '""', "augment", "xxxxxxxxxxx…xxxxxxxend", "other", "step",
    ]  # fmt: skip


def test_of_several_events_the_time_is_called_a_median() -> None:
    events = (EventInfo("evaluation", 1000, 0, 6200.0, 5), EventInfo("checkpoint", 7, 0, 204.0, 1))

    text = " ".join(card(report_of(events=events)).split())

    assert "5 evaluations (median 6.2 s) · checkpoint of 204 ms at step 7" in text


def test_the_sentence_is_the_reports_own_letter_for_letter() -> None:
    assert INPUT_BOUND.summary in card(golden("input_bound"))


def test_sentence_price_next_and_why_come_in_this_order() -> None:
    text = card(golden("input_bound"))

    places = [text.index(word) for word in ("INPUT BOUND", "  price", "  next", "  why", "  input ")]
    assert places == sorted(places)


def test_only_phases_of_half_a_percent_have_a_row_and_the_rest_is_folded_without_loss() -> None:
    mean_ms = {"input": 500.0, "forward": 498.6, "optimizer": 0.8, "gc": 0.6}
    text = card(report_of(mean_ms=mean_ms))

    assert "optimizer" not in text
    assert "garbage" not in text
    (row,) = (line for line in text.splitlines() if line.strip().startswith("other"))
    assert row.split()[1:3] == ["1.4", "ms"]


def test_phases_keep_their_fixed_order_whatever_their_size() -> None:
    text = card(report_of(mean_ms={"between_steps": 50.0, "forward": 20.0, "input": 10.0}))

    assert text.index("  input ") < text.index("  forward ") < text.index("  between steps ")


def test_an_ascii_stream_gets_plain_bars_and_nothing_but_ascii() -> None:
    text = card(replace(golden("two_ranks"), run=replace(golden("two_ranks").run, name="模型")), ascii_only=True)

    assert text.isascii()
    assert "######" in text


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"status": "killed", "ended_by": "signal SIGKILL"}, "killed by SIGKILL after 41 steps in 6.4 s"),
        (
            {"status": "failed", "ended_by": "exception", "exception": "ValueError"},
            "failed with ValueError after 41 steps",
        ),
        ({"status": "failed", "ended_by": "exit", "exit_code": 7}, "failed with exit code 7 after 41 steps"),
        (
            {"status": "failed", "ended_by": "exit", "exit_code": 1, "first_death": "rank 1 killed by SIGKILL"},
            "rank 1 killed by SIGKILL after 41 steps",
        ),
        ({"status": "killed", "ended_by": "signal SIGINT"}, "interrupted (Ctrl-C) after 41 steps in 6.4 s"),
        ({"status": "unknown", "ended_by": "unknown"}, "ended unseen after 41 steps"),
        ({"status": "completed"}, "41 steps in 6.4 s · 1 rank · completed"),
        ({"status": "running"}, "running: 41 steps in 6.4 s"),
        ({"status": "running", "data_age_s": 14.2}, "running: 41 steps in 6.4 s · 1 rank · as of 14.2 s ago"),
    ],
)
def test_the_first_line_says_how_the_run_ended(run: dict[str, Any], words: str) -> None:
    first = card(report_of(steps=41, duration_s=6.4, **run)).splitlines()[0]

    assert words in first


def test_how_a_run_ended_is_never_cut_and_goes_on_in_a_line_below_where_it_is_long() -> None:
    death = "rank 1 failed with KeyboardInterrupt"
    run: dict[str, Any] = {"exit_code": 1, "steps": 60, "duration_s": 34.1, "world_size": 3}
    report = report_of(name="a-name", status="failed", first_death=death, **run)

    assert card(report).splitlines()[:4] == [
        "TraceML · a-name",
        "          rank 1 failed with KeyboardInterrupt after 60 steps in 34.1 s",
        "          3 ranks",
        "",
    ]


def test_a_word_that_no_line_has_room_for_is_divided_and_nothing_of_it_is_lost() -> None:
    report = report_of(name="a-name-of-its-own-that-is-long", status="failed", exception="Deprecation" * 9)

    lines = card(report).partition("\n\n")[0].splitlines()

    told = "".join(line.strip() for line in lines)
    assert re.search("with(Deprecation){9} ?after [0-9,]+ steps in .*1 rank$", told)
    assert all(len(line) <= 80 for line in lines)


def test_data_of_a_moment_ago_is_not_called_old() -> None:
    assert "as of" not in card(report_of(status="running", data_age_s=4.9))


def test_a_price_that_is_an_upper_bound_says_at_most() -> None:
    impact = ImpactInfo(ms=20.0, pct=25.0, low_ms=20.0, high_ms=20.0, speedup=1.33)
    text = card(report_of(verdict=replace(INPUT_BOUND, diagnosis="COMM_BOUND", impact=impact)))

    assert "without it at most 1.3 times as fast" in text


def test_faults_of_ours_and_notes_are_shown_and_many_are_counted() -> None:
    report = report_of(notes=tuple(f"note {n}" for n in range(6)))
    faulty = replace(report, coverage=CoverageInfo("host", faults=(FaultInfo("backward", "KeyError", 1204, off=True),)))

    assert "2 further notes in the JSON" in card(report)
    assert "a fault of TraceML in backward, 1,204 times; switched off: KeyError" in card(faulty, width=120)


def test_what_else_was_found_stands_below_the_bars_and_a_normal_system_does_not() -> None:
    report = report_of()
    cpu = finding("CPU_SATURATED", "info", "The cores are busy.")
    more = tuple(finding(f"OTHER_{n}", "warning", "Something.") for n in range(3))
    system = replace(report.system, findings=(cpu, finding("NORMAL", "info", "Fine.")))
    time = replace(report.step_time, findings=(finding("INPUT_BOUND", "critical", "Waits."), *more))

    text = card(replace(report, system=system, step_time=time))

    assert text.count("INPUT BOUND") == 1
    assert "besides     OTHER 0 (warning): Something." in text
    assert "1 further finding in the JSON" in text
    assert "Fine." not in text
    assert "CPU SATURATED: The cores are busy." in card(replace(report, system=system))


def finding(diagnosis: str, severity: str, summary: str) -> FindingInfo:
    return FindingInfo(diagnosis, severity, summary, why="", next="", rule="")


def test_the_same_event_on_every_rank_is_told_once() -> None:
    events = tuple(EventInfo("evaluation", 1000, rank, 6200.0, 5) for rank in range(8))

    assert card(report_of(events=events)).count("evaluations") == 1


def test_a_phase_that_no_table_knows_is_shown_by_its_name() -> None:
    report = report_of()
    rows = {**phase_rows({"input": 5.0}), "unheard": phase_rows({"input": 5.0})["input"]}

    assert "unheard" in card(replace(report, step_time=replace(report.step_time, phases=rows)))


def test_a_run_without_trace_step_says_on_its_first_lines_that_steps_were_inferred() -> None:
    lines = card(report_of(inferred=True, steps=100)).splitlines()

    assert "100 inferred steps" in " ".join(lines[:2])


@pytest.mark.parametrize(
    ("pct", "world_size", "words"),
    [
        (28.4, 1, " waited for a core 28 % of the time"),
        (10.0, 4, " a rank waited for a core 10 % of the time"),
        (9.9, 1, ""),
        (None, 1, ""),
    ],
)
def test_a_training_that_waited_for_a_core_a_tenth_of_the_time_says_so(
    pct: float | None, world_size: int, words: str
) -> None:
    report = report_of(world_size=world_size)

    text = " ".join(card(replace(report, process=ProcessInfo(waited_for_core_pct=pct))).split())

    assert words in text
    assert ("for a core" in text) == bool(words)
