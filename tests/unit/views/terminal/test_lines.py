"""Holds the line model of output to what a terminal shows, and hostile streams to nothing."""

from __future__ import annotations

import random
import unicodedata

import pyte
import pytest

from traceml.views.terminal.lines import MAX_CELLS, MAX_LINES, REACH, Transcript
from traceml.views.terminal.sgr import PLAIN, Look

_COLUMNS = 600
_COLOURS = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")


def printed(*pieces: bytes) -> Transcript:
    transcript = Transcript()
    for piece in pieces:
        transcript.feed(piece)
    return transcript


def texts(transcript: Transcript) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in transcript.rows(0, transcript.num_shown)]


def test_a_progress_bar_is_one_line_in_its_last_state() -> None:
    transcript = printed(b"epoch 0:  10%|#   |\r", b"epoch 0:  20%|##  |\r", b"epoch 0: 100%|####|\ndone\n")

    assert texts(transcript) == ["epoch 0: 100%|####|", "done"]


def test_a_shorter_text_over_a_longer_one_leaves_its_rest_until_it_is_erased() -> None:
    assert texts(printed(b"loading 100 files\rdone")) == ["doneing 100 files"]
    assert texts(printed(b"loading 100 files\r\x1b[Kdone")) == ["done"]


def test_nested_bars_redraw_the_lines_above() -> None:
    outer, inner = b"outer: 1\n\rinner: 1\x1b[A\r", b"outer: 2\n\rinner: 2\x1b[A\r"

    assert texts(printed(outer, inner, b"\n\nlog")) == ["outer: 2", "inner: 2", "log"]


def test_colours_and_attributes_stand_with_their_text() -> None:
    line = printed(b"\x1b[1;31mloss\x1b[0m 0.1 \x1b[38;5;208mwarn\x1b[48;2;1;2;3m!\x1b[m").rows(0, 1)[0]

    assert line == (
        ("loss", Look(fore="1", bold=True)),
        (" 0.1 ", PLAIN),
        ("warn", Look(fore="208")),
        ("!", Look(fore="208", back="#010203")),
    )


def test_bright_colours_and_colons_are_known_and_private_sequences_change_nothing() -> None:
    line = printed(b"\x1b[97;104ma\x1b[0;38:2::255:0:16mb\x1b[>4;2mc\x1b[0;999mD").rows(0, 1)[0]

    assert line == (("a", Look(fore="15", back="12")), ("bc", Look(fore="#ff0010")), ("D", PLAIN))


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x1b]0;owned\x07",
        b"\x1b]52;c;ZWNobyBvd25lZA==\x1b\\",
        b"\x1b[?1049h\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?25l",
        b"\x1bc\x1b[!p\x1b[2J\x1b[3J\x1b[H\x1b[1;3r\x1b[100;1H",
        b"\x1bPq#0;2;0;0;0#0~~@@vv\n@@~~\x1b\\",
        b"\x1b_Ga=T,f=100;AAAA\x1b\\",
        b"\x1b[6n\x1b[c\x1bZ\x05\x07\x0e\x0f\x7f\x00",
        "\u202e\u2066\u200b\u009b31m\u0090".encode(),
    ],
)
def test_what_could_drive_a_terminal_is_swallowed_and_the_text_around_it_stays(hostile: bytes) -> None:
    whole = printed(b"before " + hostile + b"after")
    single = printed(*(bytes([byte]) for byte in b"before " + hostile + b"after"))

    assert texts(whole) in (["before after"], ["before 31mafter"])  # a C1 introducer is no sequence in UTF-8
    assert texts(single) == texts(whole)


def test_a_string_that_never_ends_hides_nothing_behind_its_line() -> None:
    assert texts(printed(b"\x1b]0;title without an end\nstep 1\n")) == ["", "step 1"]
    assert texts(printed(b"\x1bP" + b"x" * (1 << 20), b"y", b"step 1"))[-1].endswith("step 1")


def test_an_endless_line_and_an_endless_escape_cost_no_memory() -> None:
    transcript = printed(b"\x1b]52;c;" + b"A" * (2 << 20), b"\n" + b"x" * (5 << 20), b"\x1b[" + b"1" * (1 << 20))

    assert [len(text) for text in texts(transcript)] == [0, MAX_CELLS]


def test_only_the_last_lines_are_kept_and_their_numbers_go_on() -> None:
    transcript = printed("".join(f"line {n}\n" for n in range(20_000)).encode())

    assert transcript.num_lines == 20_001
    assert transcript.first_kept == 20_001 - MAX_LINES
    assert "".join(text for text, _ in transcript.rows(19_999, 20_000)[0]) == "line 19999"
    assert transcript.rows(0, 10) == []


def test_half_of_a_wide_character_becomes_a_blank() -> None:
    assert texts(printed("日本\rx".encode())) == ["x 本"]
    assert texts(printed("日本\x1b[2Gx".encode())) == [" x本"]
    assert texts(printed("日本\x1b[4D\x1b[C\x1b[K".encode())) == [""]


def test_random_streams_cut_anywhere_look_as_in_a_terminal_of_eight_rows() -> None:
    for seed in range(300):
        random_ = random.Random(seed)
        stream = "".join(_token(random_) for _ in range(random_.randrange(5, 120)))
        data = stream.encode()
        cuts = sorted(random_.randrange(len(data) + 1) for _ in range(random_.randrange(6)))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]

        transcript = printed(*pieces)

        assert _seen(transcript) == _expected(stream), (seed, stream)


def test_random_bytes_raise_nothing_and_leave_nothing_that_is_not_printable() -> None:
    for seed in range(200):
        random_ = random.Random(seed)
        alphabet = b"\x1b\x1b[]0123;mKA?\\P_\r\n\t\b\x07" + bytes(range(256))
        data = bytes(random_.choice(alphabet) for _ in range(500))

        found = "".join(texts(printed(data)))

        assert "\x1b" not in found
        assert {unicodedata.category(ch) for ch in found if not ch.isprintable()} <= {"Co"}  # icons of a font


_TEXTS = ("loss", "é", "a b", "100%|", "x", "epoch 1", "────")
_CONTROLS = ("\r", "\n", "\n", "\b", "\t")
_LOOKS = (*("", "0", "1", "3", "4", "7", "9", "22", "23", "24", "27", "29"), *("31", "1;32", "45", "39", "49"))


def _token(random_: random.Random) -> str:
    number = random_.choice(["", "1", "2", "3", "7"])
    kinds = (
        *[random_.choice(_TEXTS)] * 5,
        *[random_.choice(_CONTROLS)] * 3,
        *[f"\x1b[{random_.choice(_LOOKS)}m"] * 2,
        f"\x1b[{number}{random_.choice('ABCD')}",
        f"\x1b[{random_.randrange(1, 60)}G",
        f"\x1b[{random_.choice(['', '0', '1', '2'])}K",
        f"\x1b]0;{random_.randrange(99)}\x07",
    )
    return random_.choice(kinds)


def _seen(transcript: Transcript) -> list[list[tuple[object, ...]]]:
    rows = []
    for line in transcript.rows(0, transcript.num_lines):
        cells: list[tuple[object, ...]] = []
        for text, look in line:
            cells += [_look(ch, look) for ch in text]
        rows.append(_trimmed(cells))
    return _trimmed_rows(rows)


def _look(ch: str, look: Look) -> tuple[object, ...]:
    fore = _COLOURS[int(look.fore)] if look.fore else "default"
    back = _COLOURS[int(look.back)] if look.back else "default"
    if ch == " ":  # the colours of a blank that an erasure left are the terminal's affair
        return (" ",)
    return (ch, fore, back, look.bold, look.italic, look.underline, look.reverse, look.strike)


def _expected(stream: str) -> list[list[tuple[object, ...]]]:
    screen = pyte.HistoryScreen(_COLUMNS, REACH, history=10_000)
    pyte.Stream(screen).feed(stream.replace("\n", "\r\n"))
    lines = [*screen.history.top, *(screen.buffer[y] for y in range(REACH))]
    rows = []
    for line in lines:
        chars = [line[x] for x in range(max(line, default=-1) + 1)]
        rows.append(
            _trimmed(
                [
                    (" ",)
                    if c.data == " "
                    else (c.data, c.fg, c.bg, c.bold, c.italics, c.underscore, c.reverse, c.strikethrough)
                    for c in chars
                ]
            )
        )
    return _trimmed_rows(rows)


def _trimmed(cells: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    while cells and cells[-1] == (" ",):
        cells = cells[:-1]
    return cells


def _trimmed_rows(rows: list[list[tuple[object, ...]]]) -> list[list[tuple[object, ...]]]:
    while rows and not rows[-1]:
        rows = rows[:-1]
    return rows


def test_the_terminal_of_the_comparison_is_not_this_model() -> None:
    assert REACH * 2 < _COLUMNS
    assert _expected("ab\rc") == [
        [("c", "default", "default", *[False] * 5), ("b", "default", "default", *[False] * 5)]
    ]
