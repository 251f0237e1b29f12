"""Holds what panel and full screen share to its promises: cells, palette, bar, curves, rows."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.views.report_builders import report_of
from traceml.report.series import Point
from traceml.schema import phases
from traceml.views.terminal import bar, cells, rows, spark
from traceml.views.terminal.palette import CALM, PLAIN, TROUBLE, WARNING, Ink, Palette, Style, badge_of, sign_of

DEPTHS = ("none", "16", "256", "true")
DIVIDED = (*(phase for phase in phases.PHASES if phase not in ("in_step", "gc")), "region:augment", bar.REST)
VALUES = st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), max_size=200)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_no_two_phases_share_a_glyph_in_blocks_or_in_ascii() -> None:
    signs = [sign_of(phase) for phase in DIVIDED]

    assert len({sign.block for sign in signs}) == len(DIVIDED)
    assert len({sign.ascii for sign in signs}) == len(DIVIDED)


@pytest.mark.parametrize("phase", DIVIDED)
def test_every_phase_stands_out_on_a_dark_and_on_a_light_ground(phase: str) -> None:
    ink = sign_of(phase).ink

    assert (luminance(ink.dark) + 0.05) / (luminance("#1e1e1e") + 0.05) >= 3
    assert 1.05 / (luminance(ink.light) + 0.05) >= 3


def test_without_colours_a_badge_is_reversed_and_a_phase_plain() -> None:
    palette = Palette("none")

    assert palette.sgr(badge_of("critical")) == "\x1b[1;7m"
    assert palette.sgr(Style(sign_of("input").ink)) == ""


def test_the_depths_speak_each_their_own_codes() -> None:
    orange = Style(sign_of("input").ink)

    assert [Palette(depth).sgr(orange) for depth in DEPTHS] == [
        "", "\x1b[33m", "\x1b[38;5;178m", "\x1b[38;2;230;159;0m",
    ]  # fmt: skip
    assert Palette("16").sgr(badge_of("critical")) == "\x1b[1;30;101m"
    assert Palette("true", "light").spelled(badge_of("critical")) == "bold #000000 on #D9463A"


@given(st.text(max_size=60), st.integers(0, 40))
def test_a_shortened_text_fits_and_is_the_text_or_its_beginning(text: str, room: int) -> None:
    clean = cells.clean(text)

    short = cells.shorten(clean, room)

    assert cells.width_of(short) <= room
    assert short == clean or clean.startswith(short.rstrip(cells.ELLIPSIS).rstrip())


def test_a_sentence_is_shortened_behind_a_clause_else_between_words() -> None:
    sentence = "44 % of each step waits for data: 35.6 of 81.0 ms."

    assert cells.shorten(sentence, 45) == "44 % of each step waits for data…"
    assert cells.shorten(sentence, 25) == "44 % of each step waits…"


def test_a_sign_that_terminals_disagree_on_is_drawn_as_it_counts() -> None:
    assert (
        cells.clean("I \u2764\ufe0f e\u0301\u0301\u0301\u0301 \x1b[2J\x9b1m \u202etac")
        == "I \u2764 e\u0301\u0301 [2J1m tac"
    )


@given(st.dictionaries(st.sampled_from(DIVIDED), st.floats(0.001, 1e5), max_size=12), st.integers(0, 200))
def test_a_bar_fills_its_room_exactly_and_shows_every_part_it_names(times: dict[str, float], columns: int) -> None:
    parts = bar.parts_of(report_of(mean_ms=times).step_time)

    drawn = bar.bar(parts, columns)

    assert rows.width(drawn) == (columns if parts and columns >= len(parts) else 0)
    assert all(text for text, _ in drawn)
    assert rows.width(bar.legend(parts, columns)) <= columns


def test_phases_under_one_percent_are_part_of_the_rest_which_comes_last() -> None:
    times = {"input": 38.1, "forward": 25.0, "gc": 0.4, "eval": 0.2, "in_step": 0.3, "region:augment": 9.0}

    parts = bar.parts_of(report_of(mean_ms=times).step_time)

    assert [part.label for part in parts] == ["input", "forward", "augment", "rest"]
    assert rows.plain(bar.legend(parts, 70)) == "█ input 38.1  ▓ forward 25.0  ▐ augment 9.0  ░ rest 0.9 ms"


def test_where_the_legend_has_no_room_the_smallest_part_goes_first() -> None:
    parts = bar.parts_of(report_of(mean_ms={"input": 38.1, "forward": 5.0, "backward": 14.6}).step_time)

    assert rows.plain(bar.legend(parts, 40)) == "█ input 38.1  ▒ backward 14.6 ms"
    assert bar.legend(parts, 8) == []


def test_a_single_slow_step_is_seen_in_a_calm_line() -> None:
    times = [80.0] * 600
    times[300] = 900.0

    drawn = spark.spark(times, 40)

    assert set(drawn) == {"▅", "█"}
    assert drawn.count("█") == 1


@given(VALUES, st.integers(0, 60), st.integers(1, 5), st.booleans())
def test_a_curve_keeps_its_size_whatever_the_values(
    values: list[float | None], columns: int, height: int, is_ascii: bool
) -> None:
    drawn = [spark.spark(values, columns, is_ascii=is_ascii), *spark.curve(values, columns, height, is_ascii=is_ascii)]

    assert len(drawn) == height + 1
    assert all(len(row) <= columns for row in drawn)


def test_curves_of_one_axis_stand_in_line_and_a_sampled_value_holds() -> None:
    steps = [Point(step, step, 5.0, 5.0, 9.0 if step == 7 else 5.0) for step in range(1, 9)]
    sampled = [Point(3, 3, 1.0, 1.0, 1.0), Point(6, 6, 2.0, 2.0, 2.0)]

    assert spark.over_steps(steps, (1, 8), 4, is_held=False) == [5.0, 5.0, 5.0, 9.0]
    assert spark.over_steps(sampled, (1, 8), 8, is_held=True) == [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    assert spark.over_steps(sampled, (1, 8), 8, is_held=False)[:4] == [None, None, 1.0, None]


def test_what_the_verdict_speaks_of_is_named_even_where_no_hook_sees_it() -> None:
    times = {"input": 9.7, "in_step": 0.4, "between_steps": 11.5}

    parts = bar.parts_of(report_of(mean_ms=times).step_time, named=("between_steps",))

    assert [part.label for part in parts] == ["input", "between steps", "rest"]


def test_braille_is_filled_to_its_base_and_every_value_leaves_a_dot() -> None:
    upper, lower = spark.curve([0.0, 9.0, 18.0, 18.0, None, None, 0.0], 4, 2)

    assert (upper, lower) == ("⠀⣿⠀⠀", "⣸⣿⠀⡀")


@given(st.lists(st.tuples(st.text(max_size=20), st.sampled_from([PLAIN, Style(is_bold=True), badge_of("info")]))))
def test_a_drawn_row_holds_no_control_character_but_sgr_and_is_reset_at_its_end(
    row: list[tuple[str, Style]],
) -> None:
    for depth, ground in itertools.product(DEPTHS, ("dark", "light")):
        drawn = rows.to_sgr(row, Palette(depth, ground))

        assert drawn.endswith("\x1b[0m")
        assert re.sub(r"\x1b\[[0-9;]*m", "", drawn).isprintable()


@pytest.mark.parametrize("ink", [TROUBLE, WARNING, CALM])
def test_a_badge_can_be_read_on_every_ground_and_what_is_said_in_its_ink_too(ink: Ink) -> None:
    dark, light = luminance(ink.dark) + 0.05, luminance(ink.light) + 0.05

    assert min(dark, light) / 0.05 >= 4.5  # black on it
    assert ink is CALM or (dark / (luminance("#1e1e1e") + 0.05) >= 3 and 1.05 / light >= 3)
