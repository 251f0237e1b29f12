"""Holds the panel to its promises: golden ones, every state in words, exact sizes, no name reaches a terminal raw."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.views.report_builders import INPUT_BOUND, report_of
from tests.unit.views.terminal.panels import SIZES, STATES, cells, drawn, plain, seen, series_of
from traceml.report.contract import (
    BytesInfo,
    EventInfo,
    ImpactInfo,
    PeriodInfo,
    PhaseRanks,
    RanksInfo,
    Report,
    StepMemoryInfo,
)
from traceml.report.series import Point, Series
from traceml.schema.panel import BACKGROUNDS, COLOURS, PanelRequest
from traceml.views.terminal.pace import Pace
from traceml.views.terminal.panel import Moment, metrics_of, panel
from traceml.views.terminal.rule import seconds_left

GOLDEN = Path(__file__).parent / "panels"
SGR = re.compile(r"\x1b\[[0-9;]*m")
WILD = st.one_of(st.none(), st.floats())
HOSTILE = st.one_of(
    st.text(max_size=120),
    st.sampled_from(
        ["训练" * 60, "\x1b[31mred\x1b]0;title\x07", "\x9b2J\x90q\x9c", "👩‍👩‍👧" * 30, "e\u0301" * 200, "a\rb\nc", ""]
    ),
)


def text_of(name: str, size: str) -> str:
    return "".join(plain(row).rstrip() + "\n" for row in drawn(name, size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", STATES)
def test_the_panel_is_the_golden_one(name: str, size: str) -> None:
    assert text_of(name, size) == (GOLDEN / size / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", STATES)
def test_a_panel_has_the_rows_asked_for_and_leaves_the_last_column_free(name: str, size: str) -> None:
    columns, num_rows = SIZES[size]

    for is_ascii in (False, True):
        rows = drawn(name, size, ascii=is_ascii)

        assert len(rows) == num_rows
        assert max(map(cells, rows)) < columns


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x50"])
@pytest.mark.parametrize("name", ["input_bound", "compute_bound", "straggler", "hang", "lost", "held", "waiting"])
def test_the_sentence_is_the_reports_letter_for_letter_whatever_the_size(name: str, size: str) -> None:
    words = " ".join(text_of(name, size).split())

    assert seen(name)[0].verdict.summary in words


@pytest.mark.parametrize("name", STATES)
def test_without_colours_not_one_colour_code_is_sent(name: str) -> None:
    codes = {code for row in drawn(name, "120x40") for found in SGR.findall(row) for code in found[2:-1].split(";")}

    assert codes <= {"0", "1", "2", "7"}


@pytest.mark.parametrize("name", STATES)
def test_the_words_are_the_same_in_every_depth_of_colour(name: str) -> None:
    texts = {
        tuple(map(plain, drawn(name, "120x40", colours=depth, background=ground)))
        for depth in COLOURS
        for ground in BACKGROUNDS
    }

    assert len(texts) == 1


@pytest.mark.parametrize("name", STATES)
def test_in_ascii_nothing_else_is_drawn(name: str) -> None:
    assert "".join(drawn(name, "80x24", ascii=True)).isascii()


def test_40_columns_still_say_verdict_and_price_and_draw_the_bar() -> None:
    text = text_of("input_bound", "40x12")

    assert "INPUT BOUND" in text
    assert "1.8 times as fast" in text
    assert "█" in text


def test_the_hint_falls_away_whole_where_there_is_no_room() -> None:
    report = seen("input_bound")[0]

    rules = [plain(panel(PanelRequest(columns, 8), report, {}, Moment(12.4))[0]) for columns in range(40, 140)]

    ends = [re.sub(r".*─ ", "", rule.rstrip("─ ")) if "traceml" in rule else "" for rule in rules]
    assert set(ends) == {"", "traceml attach", "traceml attach: full view"}
    assert {len(rule) for rule in rules} == set(range(39, 139))


@pytest.mark.parametrize("size", SIZES)
def test_before_the_first_step_there_is_no_curve_even_where_memory_was_read(size: str) -> None:
    report, moment = seen("first")
    memory = {"allocated": Series("allocated", "bytes", {0: (Point(1, 1, 3.3e9, 3.3e9, 3.3e9),) * 3})}
    columns, num_rows = SIZES[size]

    rows = [plain(row) for row in panel(PanelRequest(columns, num_rows), report, memory, moment)]

    assert any("waiting for the first step" in row for row in rows)
    assert [row for row in rows if set(row) & set("▁▂▃▄▅▆▇█")] == []


def test_what_stopped_coming_keeps_standing_dimmed_with_its_age_in_the_rule() -> None:
    fresh, held = drawn("input_bound", "80x24", colours="true"), drawn("held", "80x24", colours="true")

    assert "as of 14 s ago" in plain(held[0])
    assert [plain(row) for row in held[1:6]] == [plain(row) for row in fresh[1:6]]
    assert all(row.startswith("\x1b[2m") and len(SGR.findall(row)) == 2 for row in held[1:])


def test_a_lost_rank_is_shown_as_lost_and_at_which_step() -> None:
    for size in SIZES:
        assert "rank 2 lost at step 1,204" in text_of("lost", size)


def test_a_stall_is_said_in_words_before_the_price() -> None:
    text = text_of("hang", "120x40")

    assert text.index("HANG: rank 2 in input, asleep since 41.0 s at step 1,204; ranks 0, 1 and 3 wait") < text.index(
        "next"
    )


def test_before_the_first_verdict_it_says_what_is_awaited_in_grey() -> None:
    row = drawn("waiting", "80x24", colours="true")[1]

    assert plain(row).strip() == "3 of 8 steady steps seen."
    assert "38;2;153;153;153" in row


def test_before_the_first_step_it_says_so_and_for_how_long_and_what_is_open() -> None:
    for size in SIZES:
        text = text_of("first", size)

        assert "waiting for the first step, 12 s" in text
        assert "in compile for 8 s" in text


def test_a_run_that_is_over_says_how_it_ended_and_no_pace() -> None:
    assert "failed with ValueError after 6.4 s" in text_of("failed", "80x24")
    assert "completed in 6 min 45 s" in text_of("completed", "80x24")
    assert "steps/s" not in text_of("completed", "120x40")


def test_of_several_ranks_the_worst_is_named() -> None:
    for size in ("80x24", "120x40", "200x50"):
        assert "worst rank 3: input 61.0 ms" in text_of("straggler", size)


def test_the_curves_are_those_of_the_clock_that_was_judged_on() -> None:
    assert metrics_of(seen("device")[0]) == ("device:period", "device:input", "allocated")
    assert metrics_of(seen("input_bound")[0]) == ("period", "input", "allocated")


@st.composite
def wild_reports(draw: Any) -> Report:
    """Reports of any run whatever: hostile names, wild numbers, none at all, 64 ranks."""
    name = draw(HOSTILE)
    num_ranks = draw(st.sampled_from([1, 2, 64]))
    wild: Any = [draw(WILD) for _ in range(16)]
    ms, pct, low_ms, high_ms, speedup = (value or 0.0 for value in wild[:5])
    impact = ImpactInfo(ms, pct, low_ms, high_ms, speedup)
    verdict = replace(
        INPUT_BOUND,
        diagnosis=draw(st.one_of(st.just("INSUFFICIENT_DATA"), HOSTILE)),
        severity=draw(st.sampled_from(["critical", "warning", "info", name])),
        summary=draw(HOSTILE), why=draw(HOSTILE), next=draw(HOSTILE), impact=draw(st.sampled_from([None, impact])),
    )  # fmt: skip
    live = {
        "rank": draw(st.sampled_from([0, None, "x"])), "phase": draw(st.sampled_from(["input", "", name, None])),
        "since_s": wild[5], "step": draw(st.one_of(st.none(), st.integers())), "told": name, "stall": "hang",
        "lost": draw(st.sampled_from([[], [[2, 5]], [[rank, 9] for rank in range(64)], None])), "halted": name,
        "host": {"cpu_percent": wild[6], "memory_bytes": wild[7], "memory_limit_bytes": wild[8], "num_cores": wild[9]},
        "devices": [{"busy_percent": wild[10], "temperature_c": wild[11]}] * draw(st.integers(0, 9)),
    }  # fmt: skip
    timed = st.sampled_from(["input", "sync", "forward", "gc", f"region:{name}"])
    maybe_bytes = st.one_of(st.none(), st.integers(0, 1 << 50))
    held = BytesInfo(draw(maybe_bytes), draw(maybe_bytes))
    peak = draw(st.sampled_from([None, held]))
    phases = {"input": PhaseRanks(wild[1], wild[2], 63), name: PhaseRanks(1.0, 2.0, 0)}
    return report_of(
        verdict=verdict,
        mean_ms=draw(st.dictionaries(timed, st.floats(0, 1e9))),
        period=PeriodInfo(*wild[11:16]),
        ranks=RanksInfo(0, num_ranks - 1, (), phases),
        events=(EventInfo(name, 3, 0, wild[3], 2, name),) * draw(st.integers(0, 3)),
        memory=StepMemoryInfo(None, held, None, peak, draw(maybe_bytes), None, None, "rss"),
        name=name,
        status=draw(st.sampled_from(["running", "failed", "completed", "killed", "unknown", name])),
        exception=name,
        steps=draw(st.sampled_from([0, 3, 10**15])),
        last_step=draw(st.sampled_from([None, 0, 3, 10**15])),
        total_steps=draw(st.sampled_from([None, 0, 2, 10**18])),
        user_step=draw(st.sampled_from([None, 7])),
        world_size=num_ranks,
        live=draw(st.sampled_from([None, live])),
        data_age_s=wild[4],
        restarts=draw(st.integers(0, 3)),
        duration_s=draw(st.floats(0, 1e9)),
    )


REQUESTS = st.builds(
    PanelRequest,
    st.integers(10, 220),
    st.integers(1, 14),
    st.sampled_from(COLOURS),
    st.sampled_from(BACKGROUNDS),
    st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(
    wild_reports(),
    REQUESTS,
    st.lists(st.floats(), max_size=40),
    st.builds(Moment, WILD, st.floats(0, 1e9)),
)
def test_no_run_whatever_breaks_the_panel(
    report: Report, request: PanelRequest, values: list[float], moment: Moment
) -> None:
    points = {0: tuple(Point(at, at, value, value, value) for at, value in enumerate(values))}
    series = {metric: Series(metric, "ms", points) for metric in metrics_of(report)} if values else {}

    rows = panel(request, report, series, moment)

    assert len(rows) == request.rows
    assert all(cells(row) < request.columns for row in rows)
    assert all(SGR.sub("", row).isprintable() and row.endswith("\x1b[0m") for row in rows)
    assert all(row.isascii() for row in rows if request.ascii)


def test_what_would_take_for_ever_has_no_time_left() -> None:
    report = report_of(period=PeriodInfo(1e308, 1.0, 1.0, 1.0, 1.0), steps=41, total_steps=10_000)

    assert seconds_left(report, 41) is None


def test_the_pace_is_that_of_the_last_twenty_seconds_and_quiet_counts_from_the_last_step() -> None:
    pace = Pace()
    for at in range(100):
        moment = pace.feed(at / 2, step=at if at < 60 else 2 * at - 60)  # twice as fast from 30 s on

    assert moment.steps_per_s == pytest.approx(4.0, rel=0.05)
    assert pace.feed(60.0, step=138).quiet_s == pytest.approx(10.5)


def test_the_pace_does_not_count_the_time_before_the_first_step() -> None:
    pace = Pace()
    for at in range(40):  # 12 s of startup, then 47 steps/s
        moment = pace.feed(at / 2, None if at < 24 else 47 * (at - 23) // 2)

    assert moment.steps_per_s == pytest.approx(47, rel=0.05)
    assert moment.quiet_s == 0.0


def test_before_the_first_step_there_is_no_pace_but_it_is_known_how_long_it_is_quiet() -> None:
    pace = Pace()
    pace.feed(0.0, None)

    assert pace.feed(7.0, None) == Moment(None, 7.0)


def test_the_pace_does_not_count_the_time_in_which_the_process_stood_still() -> None:
    pace, step = Pace(), 0
    for at in range(80):  # ten steps a second, but for 15 s in which it is stopped
        is_halted = 30 <= at < 60
        step += 0 if is_halted else 5
        moment = pace.feed(at / 2, step, is_halted=is_halted)

    assert moment.steps_per_s == pytest.approx(10, rel=0.05)


def test_a_stopped_process_is_quiet_for_as_long_as_it_is() -> None:
    pace = Pace()
    for at in range(10):
        moment = pace.feed(float(at), min(at, 4), is_halted=at > 4)

    assert moment.quiet_s == pytest.approx(5.0)


def test_a_new_attempt_begins_its_pace_anew() -> None:
    pace = Pace()
    for at, step in ((0.0, 900), (1.0, 1000), (2.0, 1), (3.0, 11)):
        moment = pace.feed(at, step)

    assert moment.steps_per_s == pytest.approx(10.0)


def test_panels_of_a_run_without_curves_still_say_the_figures() -> None:
    report = seen("input_bound")[0]

    with_curves = [plain(row) for row in panel(PanelRequest(120, 11), report, series_of(report), Moment())]
    without = [plain(row) for row in panel(PanelRequest(120, 11), report, {}, Moment())]

    assert any("▅" in row for row in with_curves)
    assert not any("▅" in row for row in without)
    assert without[1] == with_curves[1]


@pytest.mark.parametrize("num_rows", range(2, 14))
def test_what_is_cut_says_so_whatever_the_number_of_rows(num_rows: int) -> None:
    long = "move the work between the steps elsewhere: " + "it costs time and shows as a rest of each step " * 4
    report = report_of(verdict=replace(INPUT_BOUND, next=long, summary=long), total_steps=9)

    for columns in (60, 80, 120):
        text = " ".join(" ".join(plain(row) for row in panel(PanelRequest(columns, num_rows), report, {})).split())

        for found in re.findall(r"it costs time and shows as a rest of each step|$", text)[:1]:
            assert not found or "…" in text
