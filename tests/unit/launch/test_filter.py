"""Tests what a script's bytes do to a terminal that keeps a panel: pyte is the terminal."""

from __future__ import annotations

import random

import pytest

pyte = pytest.importorskip("pyte")  # the dev extra's; the oldest Python's job has none of it

from traceml.launch.terminal.filter import Filter  # noqa: E402
from traceml.launch.terminal.region import Region  # noqa: E402

ROWS, COLUMNS = 24, 80
PANEL = [f"panel {number}" for number in range(8)]


class Watched:
    """A terminal, a region and a filter: what the pump does with a script's bytes, without a process."""

    def __init__(self, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self.now = 100.0
        self.region = Region(rows, columns)
        self.filter = Filter(self.region, clock=lambda: self.now)
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self.stream = pyte.ByteStream(self.screen)
        self.stream.feed(self.region.open())
        self.draw()

    def print(self, data: bytes) -> None:
        self.stream.feed(self.filter.feed(data))

    def draw(self) -> bool:
        if not self.filter.is_between or self.filter.column() >= self.region.columns:
            return False
        force, self.filter.wants_redraw = self.filter.wants_redraw, False
        self.stream.feed(self.region.draw(PANEL, shown=self.filter.modes.shown, force=force))
        return True

    def leave(self) -> None:
        self.stream.feed(self.region.close() + self.filter.modes.undo())

    def rows(self) -> list[str]:
        lines = (self.screen.buffer[y] for y in range(self.screen.lines))
        return ["".join(line[x].data for x in range(self.screen.columns)).rstrip() for line in lines]

    def history(self) -> list[str]:
        lines = self.screen.history.top
        return ["".join(line[x].data for x in range(self.screen.columns)).rstrip() for line in lines]

    @property
    def panel(self) -> list[str]:
        return self.rows()[-self.region.num_rows :]


def test_output_scrolls_above_the_panel_and_every_line_of_it_is_in_the_scroll_back() -> None:
    seen = Watched()
    for number in range(1000):
        seen.print(b"line %d\r\n" % number)
        if number % 7 == 0:
            seen.draw()
    assert seen.panel == PANEL
    seen.leave()

    assert [*seen.history(), *(row for row in seen.rows() if row)] == [f"line {number}" for number in range(1000)]


def test_the_panel_takes_its_room_without_touching_what_stands_there() -> None:
    screen = pyte.HistoryScreen(COLUMNS, ROWS, history=100)
    stream = pyte.ByteStream(screen)
    for number in range(30):
        stream.feed(b"before %d\r\n" % number)
    stream.feed(b"prompt> ")
    stream.feed(Region(ROWS, COLUMNS).open())

    assert (screen.cursor.x, screen.cursor.y) == (8, ROWS - 8 - 1)
    above = ["".join(screen.buffer[y][x].data for x in range(20)).rstrip() for y in range(ROWS - 8)]
    assert above[-3:] == ["before 28", "before 29", "prompt>"]


def test_closing_erases_nothing_of_the_scripts_on_the_last_row_either() -> None:
    screen = pyte.HistoryScreen(COLUMNS, 10, history=100)
    stream = pyte.ByteStream(screen)
    region = Region(10, COLUMNS)
    stream.feed(region.open())
    stream.feed(b"\x1b[r\x1b[10;1Hthe bar at the bottom\r")  # where a smaller window leaves the cursor
    stream.feed(region.close())

    text = "\n".join("".join(screen.buffer[y][x].data for x in range(40)).rstrip() for y in range(10))
    assert "the bar at the bottom" in text


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x1bc",
        b"\x1b[1;24r",
        b"\x1b[r",
        b"\x1b[5;10r",
        b"\x1b[!p",
        b"\x1b[?6h",
        b"\x1b[?3h",
        b"\x1b#8",
        b"\x1b[100;1Hfar below",
        b"\x1b[23;5Hbelow",
        b"\x1b[24d\n\n\n",
        b"\x1b[20;1f\x1b[J",
        b"\x1b[2J",
        b"\x1b[H\x1b[2J\x1b[3J",
        b"\x1b[50B\n\n\n\x1b[99E",
        b"\x1b[40;200H",
    ],
)
def test_whatever_clears_moves_or_resets_leaves_the_panel_where_it_is(hostile: bytes) -> None:
    seen = Watched()
    seen.print(b"before\r\n" * 5)
    seen.print(hostile)
    seen.draw()
    assert seen.panel == PANEL
    seen.print(b"\r\nafter\r\n" * 40)

    seen.draw()
    assert seen.panel == PANEL
    assert not any("panel" in row for row in seen.history())


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_sequence_that_comes_in_pieces_is_seen_whole(cut: int) -> None:
    seen = Watched()
    sequence = b"\x1b[23;10H\x1b[2J"
    seen.print(b"before" + sequence[:cut])
    seen.print(sequence[cut:] + b"after")
    seen.draw()

    assert seen.panel == PANEL
    assert seen.rows()[ROWS - 8 - 1].strip() == "after"


@pytest.mark.parametrize(
    "unfinished", [b"\x1b", b"\x1b[", b"\x1b[3", b"\x1b[?25", b"caf\xc3", b"\xe2\x96", b"\xf0\x9f\x98", b"\x1b]0;ti"]
)
def test_nothing_is_drawn_inside_a_sequence_or_a_character(unfinished: bytes) -> None:
    seen = Watched()
    seen.print(b"text" + unfinished)

    assert not seen.draw()


def test_nothing_is_drawn_inside_a_synchronized_update() -> None:
    seen = Watched()
    seen.print(b"\x1b[?2026hhalf")
    assert not seen.draw()
    seen.print(b"whole\x1b[?2026l")

    assert seen.draw()


def test_the_scripts_saved_cursor_is_waited_for_but_not_for_ever() -> None:
    seen = Watched()
    seen.print(b"\x1b7there")
    assert not seen.draw()
    seen.now += 0.4
    assert seen.draw()
    seen.print(b"\x1b7")
    seen.print(b"\x1b8")

    assert seen.draw()


def test_nothing_is_drawn_while_the_next_character_would_wrap() -> None:
    seen = Watched()
    seen.print(b"x" * COLUMNS)
    assert not seen.draw()
    seen.print(b"y")

    assert seen.draw()


def test_a_program_on_a_screen_of_its_own_has_it_whole_and_the_panel_comes_back() -> None:
    seen = Watched()
    entered = seen.filter.feed(b"\x1b[?1049h\x1b[24;1H:")
    assert not seen.region.is_open
    assert entered.index(b"\x1b[r") < entered.index(b"\x1b[?1049h")
    assert b"\x1b[24;1H:" in entered
    assert not seen.filter.is_between
    left = seen.filter.feed(b"\x1b[?1049l")

    assert left.index(b"\x1b[?1049l") < left.index(b"\x1b[1;16r")
    assert seen.filter.wants_redraw
    assert seen.region.is_open


def test_a_full_screen_program_that_begins_with_the_rows_above_the_panel_scrolls_in_all_of_them() -> None:
    seen = Watched()  # 16 rows, then 24
    seen.print(b"\x1b[?1049h\x1b[1;16r\x1b[1;1Hfirst\x1b[16;1Hlast")

    assert seen.screen.margins is None


def test_a_full_screen_program_that_knows_its_rows_scrolls_in_those_it_wants() -> None:
    seen = Watched()
    seen.print(b"\x1b[?1049h\x1b[1;16r\x1b[999;999H\x1b[1;16r")
    assert seen.screen.margins is None  # it asks for its size so, and knows nothing yet
    seen.print(b"\x1b[24;1H~\x1b[1;16r")
    assert seen.screen.margins == (0, 15)
    seen.print(b"\x1b[1;24r")

    assert seen.screen.margins is None


def test_a_region_of_another_size_goes_when_the_program_is_told_its_rows_and_the_cursor_stays() -> None:
    seen = Watched()
    seen.print(b"\x1b[?1049h\x1b[2;15r\x1b[7;3H")
    assert seen.screen.margins == (1, 14)
    seen.stream.feed(seen.filter.widen())

    assert seen.screen.margins is None
    assert (seen.screen.cursor.y, seen.screen.cursor.x) == (6, 2)
    assert seen.filter.widen() == b""


def test_nothing_is_written_into_a_string_of_the_programs() -> None:
    seen = Watched()
    seen.print(b"\x1b[?1049h\x1b[2;15r\x1b]0;a tit")

    assert seen.filter.widen() == b""


@pytest.mark.parametrize("screen", [47, 1047, 1049])
def test_a_region_of_a_full_screen_program_does_not_outlive_its_screen(screen: int) -> None:
    seen = Watched()
    seen.filter.feed(b"\x1b[?%dh\x1b[24;1H\x1b[2;15r" % screen)
    left = seen.filter.feed(b"\x1b[?%dl" % screen)

    assert left.index(b"\x1b[r") < left.index(b"\x1b[?%dl" % screen) < left.index(b"\x1b[1;16r")


def test_a_stopped_full_screen_program_takes_its_region_along_and_brings_it_back_at_the_same_size() -> None:
    seen = Watched()
    seen.filter.feed(b"\x1b[?1049h\x1b[24;1H\x1b[2;15r")

    assert seen.filter.leave() == b"\x1b[r\x1b[?1049l"
    assert seen.filter.return_(is_resized=False) == b"\x1b[?1049h\x1b[2;15r"
    assert seen.filter.return_(is_resized=True) == b"\x1b[?1049h"


def test_what_the_script_switched_on_is_switched_off_at_the_end_and_nothing_else() -> None:
    seen = Watched()
    seen.print(b"\x1b[?1000;1006h\x1b[?25l\x1b[?2004h\x1b=\x1b(0\x1b[5 q\x1b[?7l\x1b[?2004l")
    back = seen.filter.modes.undo()

    for undo in (b"?1000l", b"?1006l", b"?25h", b"?7h", b"\x1b>", b"\x1b(B", b"\x1b[0 q"):
        assert undo in back
    assert b"2004" not in back
    assert Watched().filter.modes.undo() == b"\x1b[0m"


def test_a_hidden_cursor_stays_hidden_when_the_panel_is_drawn() -> None:
    seen = Watched()
    seen.print(b"\x1b[?25l")
    drawn = seen.region.draw(["new"], shown=seen.filter.modes.shown)

    assert b"\x1b[?25h" not in drawn
    assert b"\x1b[?7h" in drawn


def test_a_long_title_passes_at_once_and_its_end_is_found() -> None:
    seen = Watched()
    passed = seen.filter.feed(b"\x1b]0;" + b"t" * 100_000)
    assert len(passed) > 99_000
    assert not seen.filter.is_between
    seen.filter.feed(b"\x1b")
    seen.filter.feed(b"\\text")

    assert seen.filter.is_between


def test_without_a_region_every_byte_passes_unchanged() -> None:
    seen = Watched(rows=8)
    data = b"\x1b[1;5r\x1b[?6h\x1bc\x1b[99;1H\x1b[2J\x1b[!p\x1b#8text"

    assert seen.filter.feed(data) == data


def test_only_rows_that_changed_are_drawn() -> None:
    region = Region(ROWS, COLUMNS)
    region.open()
    region.draw(PANEL)

    assert region.draw(PANEL) == b""
    one = region.draw([*PANEL[:3], "new", *PANEL[4:]])
    assert b"new" in one
    assert b"panel" not in one


@pytest.mark.parametrize(
    ("rows", "columns", "num"),
    [(8, 80, 0), (9, 80, 4), (17, 80, 4), (18, 80, 8), (29, 80, 8), (30, 80, 11), (50, 59, 4), (50, 200, 11)],
)
def test_the_panel_is_as_high_as_the_terminal_allows(rows: int, columns: int, num: int) -> None:
    assert Region(rows, columns).num_rows == num


def test_random_bytes_raise_nothing_and_lose_no_text() -> None:
    dice = random.Random(7)
    pieces = [
        b"\x1b",
        b"[",
        b"?",
        b"1049h",
        b"\x1b[2J",
        b"\x1b]",
        b"\x07",
        b"\\",
        b"text",
        b"\xf0",
        b"\r\n",
        b"\x1b[5H",
    ]
    for _ in range(300):
        seen = Watched()
        for _ in range(dice.randrange(40)):
            seen.filter.feed(b"".join(dice.choice(pieces) for _ in range(dice.randrange(6))))
            assert seen.filter.column() >= 0
            assert seen.filter.is_between in (True, False)


@pytest.mark.parametrize("seed", range(20))
def test_the_column_is_where_the_terminal_has_its_cursor(seed: int) -> None:
    dice = random.Random(seed)
    seen = Watched()
    pieces = ["word ", "a" * 33, "\t", "\b", "\x1b[31m", "\x1b[5C", "\x1b[3D", "\x1b[40G", "\r", "\n"]
    for _ in range(60):
        seen.print(dice.choice(pieces).encode())

        assert seen.filter.column() == seen.screen.cursor.x


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("宽字", 4),
        ("e\u0301", 1),
        ("x" * 79 + "宽", 2),  # it does not fit there: pyte would draw half of it
        ("x" * 79 + "e\u0301", 80),
        ("x" * 80, 80),
        ("x" * 81, 1),
        ("x" * 160, 80),
        ("宽" * 40, 80),
        ("宽" * 41, 2),
        ("\u2588\u258c", 2),
        ("\x1b]0;a title\x07abc", 3),
    ],
)
def test_wide_characters_take_two_cells_and_joining_ones_none(text: str, column: int) -> None:
    seen = Watched()
    seen.filter.feed(text.encode())

    assert seen.filter.column() == column
