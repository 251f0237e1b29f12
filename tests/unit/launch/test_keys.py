"""Tests what is taken out of the keys: the terminal's one answer, and never a key of the user's."""

from __future__ import annotations

import pytest

from traceml.launch.terminal.keys import Background, colours_of

ASKED = {"TERM": "xterm-256color"}
LIGHT = b"\x1b]11;rgb:fafa/fafa/fafa\x1b\\"
DARK = b"\x1b]11;rgb:0000/1111/0000\x07"


@pytest.mark.parametrize(("answer", "is_light"), [(LIGHT, True), (DARK, False), (b"\x1b]11;rgb:ff/ff/ff\x07", True)])
def test_the_answer_says_light_or_dark_and_the_keys_around_it_stay(answer: bytes, is_light: bool) -> None:
    background = Background(ASKED)

    assert background.take(b"ab" + answer + b"cd") == b"abcd"
    assert background.is_light is is_light
    assert not background.is_asked


@pytest.mark.parametrize("cut", range(2, len(LIGHT)))
def test_an_answer_in_pieces_is_one(cut: int) -> None:
    background = Background(ASKED)

    assert background.take(b"a" + LIGHT[:cut]) + background.take(LIGHT[cut:] + b"b") == b"ab"
    assert background.is_light


def test_a_second_answer_is_the_scripts_own() -> None:
    background = Background(ASKED)
    background.take(LIGHT)

    assert background.take(DARK) == DARK


@pytest.mark.parametrize(
    "keys", [b"\x1b", b"\x1b[A", b"\x1bOP", b"\x1b[200~text\x1b[201~", b"\x03", b"\x1b]", b"x\x1b"]
)
def test_keys_pass_at_once(keys: bytes) -> None:
    background = Background(ASKED)

    assert background.take(keys) + background.give_up() == keys
    assert Background(ASKED).take(b"\x1b") == b"\x1b"  # it must not wait for another key


@pytest.mark.parametrize(
    ("environ", "is_light", "is_asked"),
    [
        ({"TERM": "xterm", "COLORFGBG": "0;15"}, True, False),
        ({"TERM": "xterm", "COLORFGBG": "15;0"}, False, False),
        ({"TERM": "linux"}, False, False),
        ({"TERM": "xterm"}, False, True),
    ],
)
def test_who_is_known_not_to_answer_is_not_asked(environ: dict[str, str], is_light: bool, is_asked: bool) -> None:
    background = Background(environ)

    assert (background.is_light, background.is_asked) == (is_light, is_asked)


@pytest.mark.parametrize(
    ("environ", "colours"),
    [
        ({"TERM": "xterm-256color", "NO_COLOR": "1", "COLORTERM": "truecolor"}, "none"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "true"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "256"),
        ({"TERM": "linux"}, "16"),
    ],
)
def test_colours_are_what_the_environment_promises(environ: dict[str, str], colours: str) -> None:
    assert colours_of(environ) == colours
