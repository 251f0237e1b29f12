"""Holds the full screen to its rows: everything fits, the sentence is whole, nothing that stands goes blank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.views.report_builders import INPUT_BOUND, report_of
from tests.unit.views.terminal.panels import STATES
from tests.unit.views.terminal.scenes import NOW_S, SIZES, follower, scene_of, sight_of, texts, words
from traceml.report.contract import EventInfo, PhaseRanks, RankRow, RanksInfo
from traceml.report.series import Point
from traceml.schema import stalls
from traceml.views.terminal import sight
from traceml.views.terminal.graphs import Graph, graph_rows
from traceml.views.terminal.head import Moment
from traceml.views.terminal.palette import PLAIN, Style
from traceml.views.terminal.scene import Asked, Scene
from traceml.views.terminal.tables import rank_rows
from traceml.views.text.columns import width_of

LOG = b"".join(b"\x1b[32mINFO\x1b[0m step %d loss=%.4f\n" % (n, 1 / (n + 1)) for n in range(200))
PAGES = (sight.MAIN, sight.RANKS, sight.SYSTEM, sight.OUTPUT, sight.LAYERS, sight.HELP)
BAR = "█▓▒▞░"


@pytest.mark.parametrize(
    ("state", "page"),
    [*((state, sight.MAIN) for state in STATES), *(("straggler", page) for page in PAGES), ("starting", sight.RANKS)],
)
def test_every_page_fits_whatever_the_terminal(tmp_path: Path, state: str, page: str) -> None:
    shown = sight_of(scene_of(state), page=page, output=follower(tmp_path, LOG))

    for width in (20, 33, 40, 59, 60, 80, 99, 100, 200):
        for height in (5, 9, 20, 24, 50):
            assert len(texts(shown, width, height)) == height


@pytest.mark.parametrize("state", ["input_bound", "compute_bound", "straggler", "hang", "held", "completed", "failed"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_sentence_is_the_reports_letter_for_letter(state: str, width: int, height: int) -> None:
    scene = scene_of(state)
    assert scene.report is not None

    assert scene.report.verdict.summary in words(texts(sight_of(scene), width, height))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_price_next_and_bar_stand_at_every_size(tmp_path: Path, width: int, height: int) -> None:
    rows = texts(sight_of(scene_of("input_bound"), output=follower(tmp_path, LOG)), width, height)

    assert "without it 1.8 times as fast" in words(rows)
    assert "num_workers=4" in words(rows)
    assert any(sum(row.count(glyph) for glyph in BAR) > width // 2 for row in rows)
    assert "INPUT BOUND critical" in words(rows)


def test_at_80_by_24_curves_host_events_and_output_have_their_rows(tmp_path: Path) -> None:
    read = words(texts(sight_of(scene_of("input_bound"), output=follower(tmp_path, LOG)), 80, 24))

    for told in (
        "step 1,204 of 5,000", "12.4 steps/s", "left", "p50", "memory", "host CPU 38 % of 16 cores", "GPU 24 %",
        "output · 200 lines", "step 199 loss=0.0050", "q close", "? help",
    ):  # fmt: skip
        assert told in read, told


def test_at_120_by_40_the_ranks_stand_beside_the_curves(tmp_path: Path) -> None:
    rows = texts(sight_of(scene_of("straggler"), output=follower(tmp_path, LOG)), 120, 40)

    worst = next(row for row in rows if "rank 3" in row and "worst" in row)
    assert "█" in worst
    assert worst.index("rank 3") > 60
    assert "waiting for ranks" in words(rows)
    assert "61" in next(row for row in rows if "█ input  " in row and "3.10" in row)


def test_who_waits_longest_is_not_called_the_worst() -> None:
    rows = texts(sight_of(scene_of("straggler")), 120, 40)

    assert next(row for row in rows if "waiting for ranks" in row and "58.0" in row).rstrip().endswith("58.4")


def test_data_that_stops_keeps_standing_with_its_age_and_without_colours() -> None:
    scene = scene_of("input_bound")
    shown = sight_of(replace(scene, trouble="The run cannot be read."), moment=Moment(now_s=NOW_S + 14))

    rows = sight.screen(shown, 120, 40)

    held, fresh = words(texts(shown, 120, 40)[1:-1]), words(texts(sight_of(scene), 120, 40)[1:-1])
    assert "14 s ago" in "".join(text for text, _ in rows[0])
    assert held.replace("held The run cannot be read. ", "") == fresh
    body = [style for row in rows[1:-1] for _, style in row if isinstance(style, Style)]
    assert {style.is_dim for style in body} == {True}


def test_data_that_comes_as_it_should_has_no_age_and_neither_has_a_run_that_is_over() -> None:
    fresh = texts(sight_of(scene_of("input_bound"), moment=Moment(now_s=NOW_S + 2)), 80, 24)
    over = texts(sight_of(scene_of("completed"), moment=Moment(now_s=NOW_S + 900)), 80, 24)

    assert " ago" not in fresh[0]
    assert " ago" not in over[0]
    assert "completed · 5,000 steps" in over[0]
    assert "live" not in words(over)


def test_a_look_that_never_comes_back_is_told_by_its_age() -> None:
    shown = sight_of(scene_of("input_bound"), moment=Moment(now_s=NOW_S + 41, gap_s=4.0))

    assert "41 s ago" in texts(shown, 80, 24)[0]


def test_before_the_first_verdict_it_says_what_is_awaited() -> None:
    waiting, starting = texts(sight_of(scene_of("waiting")), 80, 24), texts(sight_of(scene_of("starting")), 80, 24)
    nothing = texts(sight_of(Scene(Asked(), trouble="Nothing of it is stored yet.", taken_s=NOW_S)), 80, 24)

    assert "3 of 8 steady steps seen." in words(waiting)
    assert "waiting for the first step, 12 s" in words(starting)
    assert "Nothing of it is stored yet." in words(nothing)
    assert "INSUFFICIENT" not in words([*waiting, *starting, *nothing])


def test_before_the_first_step_the_screen_has_no_curve_even_where_memory_was_read() -> None:
    memory = {"allocated": tuple(Point(step, step, 3.3e9, 3.3e9, 3.3e9) for step in (1, 2))}

    for width, height in SIZES:
        rows = texts(sight_of(scene_of("first", curves=memory)), width, height)
        assert "waiting for the first step" in words(rows)
        assert [row for row in rows if set(row) & set("▁▂▃▄▅▆▇█⣀⣿")] == []


def test_a_hang_and_a_lost_rank_come_before_price_and_advice() -> None:
    hang, lost = texts(sight_of(scene_of("hang")), 80, 24), words(texts(sight_of(scene_of("lost")), 80, 24))

    assert "HANG: rank 2 in input, asleep" in words(hang[:5])
    assert "rank 2 lost at step 1,204" in lost


def test_a_rank_that_died_is_lost_in_the_map_and_in_the_table() -> None:
    scene = scene_of("straggler")
    assert scene.report is not None
    death = EventInfo(stalls.FIRST_DEATH, 41, 0, None, 1, "rank 0 killed by SIGKILL in backward")
    rows = texts(sight_of(replace(scene, report=replace(scene.report, events=(death,))), page=sight.RANKS), 120, 40)

    assert len([row for row in rows if "rank 0" in row and row.rstrip().endswith("lost")]) >= 2


def test_what_cannot_be_had_says_why_once_and_leaves_no_empty_box(tmp_path: Path) -> None:
    output = follower(tmp_path, b"")
    rows = texts(sight_of(scene_of("completed"), output=output), 80, 24)

    assert words(rows).count("not kept; `traceml run --save-output` keeps it") == 1
    assert not any("── output" in row for row in rows)


def test_history_says_of_which_steps_it_speaks_and_pause_that_it_is_one() -> None:
    past = sight_of(scene_of("input_bound", window=(401, 800)))

    assert "only steps 401 to 800" in texts(past, 80, 24)[0]
    assert "paused" in texts(replace(past, moment=Moment(is_paused=True)), 80, 24)[0]


def test_keys_go_when_there_is_no_room_but_closing_and_help_stay() -> None:
    narrow, wide = (
        texts(sight_of(scene_of("straggler")), 30, 20)[-1],
        texts(sight_of(scene_of("straggler")), 80, 24)[-1],
    )

    assert "q close" in narrow
    assert "? help" in narrow
    assert "r ranks" in wide
    assert "r ranks" not in texts(sight_of(scene_of("input_bound")), 200, 24)[-1]
    assert "l layers" not in wide


def test_layers_have_a_key_only_when_there_are_any() -> None:
    scene = scene_of("input_bound")
    assert scene.report is not None
    layered = replace(scene, report=replace(scene.report, layers={"encoder.0": {"ms": 3.1}}))

    assert "l layers" in texts(sight_of(layered), 120, 40)[-1]
    assert "encoder.0" in words(texts(sight_of(layered, page=sight.LAYERS), 120, 40))


@pytest.mark.parametrize(
    "hostile", ["\x1b]52;c;b3duZWQ=\x07", "\x1b[?1049h\x9b31m", "a\nb\r\u202e", "𝓌" * 300, "日本" * 90]
)
def test_names_and_words_of_the_run_reach_the_screen_without_anything_that_drives_it(hostile: str) -> None:
    event = EventInfo(hostile, 1, 0, 3.0, 1, hostile)
    report = report_of(
        name=hostile, script=hostile, hostname=hostile, exception=hostile, status="failed", events=(event,)
    )
    scene = Scene(Asked(), report, taken_s=NOW_S)

    for page in PAGES:
        for width, height in SIZES:
            rows = texts(replace(sight_of(scene), name=hostile, page=page), width, height)
            assert all(ch.isprintable() for row in rows for ch in row)


def test_a_single_slow_step_stays_to_be_seen_in_a_long_curve() -> None:
    points = [Point(n, n, 10.0, 10.0, 900.0 if n == 2222 else 10.0) for n in range(1, 5001)]
    graph = Graph("step", tuple(points), PLAIN, ("10.0", "10.0", "900"), "ms")

    (_, row) = graph_rows([graph], 80, 1, steps="steps 1 to 5,000")
    assert "".join(text for text, _ in row).count("█") == 1


def test_without_blocks_and_braille_everything_is_ascii() -> None:
    for page in (sight.MAIN, sight.RANKS):
        rows = texts(sight_of(scene_of("straggler"), is_ascii=True, page=page), 120, 40)

        assert [row for row in rows if not row.isascii()] == []


HEADS = {"mean", "share", "p95", "max", "median", "worst", "rank", "rank 0", "rank 1"}


@pytest.mark.parametrize("state", ["input_bound", "completed", "straggler"])
def test_the_headings_of_the_phases_are_whole_or_not_there(state: str) -> None:
    report = scene_of(state).report
    assert report is not None

    for width in range(100, 221):
        rows = texts(sight_of(scene_of(state)), width, 45)
        at = next(at for at, row in enumerate(rows) if "── phases" in row)
        start = rows[at].index("── phases")
        assert set(rows[at + 1][start:].split()) <= HEADS


@pytest.mark.parametrize("width", range(20, 101, 5))
def test_the_table_of_ranks_has_whole_columns_at_every_width(width: int) -> None:
    report = scene_of("straggler").report
    assert report is not None

    for row in rank_rows(report, width):
        assert width_of("".join(text for text, _ in row)) <= max(width, 28)


def two_ranks() -> Scene:
    """Rank 1 is late in input, and rank 0 waits for it."""
    rows = (
        RankRow(1, 1180, 81.0, {"input": 35.6, "forward": 21.1, "sync": 3.98}, own_ms=77.0),
        RankRow(0, 1180, 81.0, {"input": 2.1, "forward": 21.0, "sync": 34.3}, own_ms=47.0),
    )
    apart = {"input": PhaseRanks(2.1, 35.6, 1), "forward": PhaseRanks(21.0, 21.1, 1), "sync": PhaseRanks(3.98, 34.3, 0)}
    mean_ms = {"input": 2.1, "forward": 21.0, "backward": 14.9, "sync": 34.3, "optimizer": 3.2}
    report = report_of(mean_ms=mean_ms, ranks=RanksInfo(0, 1, rows, apart), world_size=2)
    return Scene(Asked(), report, taken_s=NOW_S)


@pytest.mark.parametrize("page", [sight.MAIN, sight.RANKS])
@pytest.mark.parametrize(("width", "height"), [(100, 30), (120, 40), (200, 50)])
def test_of_two_ranks_neither_is_the_median(page: str, width: int, height: int) -> None:
    assert "median" not in words(texts(sight_of(two_ranks(), page=page), width, height))


def test_two_ranks_stand_by_their_names_with_the_numbers_of_the_bar() -> None:
    rows = texts(sight_of(two_ranks()), 120, 40)
    head = rows[next(at for at, row in enumerate(rows) if "── phases" in row) + 1]
    waits = next(row for row in rows if "╱ waiting for ranks" in row and row.rstrip().endswith("3.98"))

    assert waits.split()[-2:] == ["34.3", "3.98"]
    assert waits.index("34.3") + 4 == head.rindex("rank 0") + 6
    assert "waiting for ranks 34.3" in next(row for row in rows if "forward 21.0" in row)
    assert "input 2.10 ms on rank 0, on rank 1 35.6 ms" in words(rows)


@pytest.mark.parametrize("height", [12, 15, 20])
@pytest.mark.parametrize("trouble", ["dead", "hang", "lost", "none"])
def test_40_columns_have_verdict_price_and_bar_before_anything_else(tmp_path: Path, trouble: str, height: int) -> None:
    scene = scene_of(trouble if trouble in ("hang", "lost") else "input_bound")
    assert scene.report is not None
    report = replace(scene.report, verdict=INPUT_BOUND)
    if trouble == "dead":
        text = "rank 1 killed by SIGKILL in backward, 3.3 GiB held"
        run = replace(report.run, status="failed", ended_by="signal SIGKILL", exit_code=137)
        report = replace(report, run=run, events=(EventInfo(stalls.FIRST_DEATH, 41, 1, None, 1, text),))

    rows = texts(sight_of(replace(scene, report=report), output=follower(tmp_path, LOG)), 40, height)

    assert INPUT_BOUND.summary in words(rows)
    price = next(at for at, row in enumerate(rows) if row.startswith(" price"))
    assert "1.8 times as fast" in words(rows)
    bar = next(at for at, row in enumerate(rows) if sum(row.count(glyph) for glyph in BAR + "╱") > 25)
    others = [at for at, row in enumerate(rows) if row.startswith((" died", " now", " next", "── output"))]
    assert price < bar < min([*others, height])


@pytest.mark.parametrize(("width", "height"), [(100, 30), (120, 40), (200, 50)])
@pytest.mark.parametrize("state", ["completed", "input_bound", "straggler"])
def test_rows_that_no_figure_needs_are_the_outputs(tmp_path: Path, state: str, width: int, height: int) -> None:
    scene = scene_of(state)
    assert scene.report is not None
    kinds = ("evaluation", "checkpoint", "epoch start", "slow step", "garbage collection", "recompilation")
    events = tuple(EventInfo(kind, 40, 0, 900.0, 3) for kind in kinds)
    rows = texts(
        sight_of(replace(scene, report=replace(scene.report, events=events)), output=follower(tmp_path, LOG)),
        width,
        height,
    )
    output = next(at for at, row in enumerate(rows) if row.startswith("── output"))
    first = next(at for at, row in enumerate(rows) if "steps 1" in row and "p50" in row)
    is_left_empty = [not row[: width // 2 - 4].strip() for row in rows[first:output]]

    assert sum(is_left_empty) <= 4 or height - 1 - output >= (height - 2) // 3
    assert height - 1 - output >= (5 if height < 40 else 8)
