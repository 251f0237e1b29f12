"""Holds the heat map to its levels: what is usual is quiet, what is rare stands out, numbers say how much."""

from __future__ import annotations

from traceml.report.series import Point
from traceml.views.terminal.heat import HeatRow, binned, heat_legend, heat_rows, levels_of
from traceml.views.terminal.palette import CURVE
from traceml.views.text.columns import width_of


def points(*means: float, first: int = 1, steps: int = 10) -> tuple[Point, ...]:
    starts = range(first, first + steps * len(means), steps)
    return tuple(Point(start, start + steps - 1, mean, mean, mean) for start, mean in zip(starts, means))


def drawn(*rows: HeatRow, width: int = 60) -> list[str]:
    levels = levels_of({row.rank: row.points for row in rows})
    return ["".join(text for text, _ in row) for row in heat_rows(rows, levels, width, hot=CURVE)]


def test_ranks_that_hardly_differ_are_all_quiet() -> None:
    even = drawn(HeatRow(0, points(25.0, 26.0, 25.5)), HeatRow(1, points(25.2, 25.4, 26.1)))

    assert not set("".join(even)) & set("▒▓█")


def test_a_slow_rank_stands_out_and_has_its_mean_and_its_note() -> None:
    fast, slow = drawn(HeatRow(0, points(5.0, 5.0, 6.0)), HeatRow(3, points(60.0, 61.0, 62.0), "worst"))

    assert set("▓█") & set(slow)
    assert not set("▒▓█") & set(fast)
    assert slow.rstrip().endswith("61.0 worst")


def test_all_ranks_cells_are_of_the_same_steps() -> None:
    long, late = drawn(HeatRow(0, points(*[5.0] * 20)), HeatRow(1, points(5.0, 5.0, first=181)))

    assert long.count("·") > late.count("·") > 0
    assert late.index("·") > long.index("·")


def test_a_cell_is_the_mean_of_its_steps_and_a_wide_point_fills_all_of_its_cells() -> None:
    assert binned(points(10.0, 30.0), first=1, last=20, num_cells=1) == [20.0]
    assert binned(points(10.0, 30.0), first=1, last=40, num_cells=4) == [10.0, 30.0, None, None]
    assert binned(points(10.0, steps=40), first=1, last=40, num_cells=4) == [10.0] * 4


def test_the_legend_has_a_number_a_level_and_goes_whole_where_it_has_no_room() -> None:
    levels = levels_of({0: points(12.0, *[60.0] * 9)})
    legend = "".join(text for text, _ in heat_legend(levels, 60, hot=CURVE))

    assert legend == "· <24 ░ <36 ▒ <48 ▓ <60 █ 60+ ms"
    assert heat_legend(levels, width_of(legend) - 1, hot=CURVE) == []


def test_limits_that_are_near_one_another_are_told_apart() -> None:
    legend = "".join(text for text, _ in heat_legend(levels_of({0: points(12.0, 12.1)}), 60, hot=CURVE))

    assert legend == "· <12.8 ░ <13.5 ▒ <14.2 ▓ <15.0 █ 15.0+ ms"


def test_nothing_measured_draws_nothing_that_looks_like_a_measurement() -> None:
    assert not set("".join(drawn(HeatRow(0, ()), HeatRow(1, ())))) & set("·░▒▓█")
