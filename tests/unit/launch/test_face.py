"""Tests which view is chosen when: a test per row of the table."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from traceml import settings
from traceml.errors import SettingsError
from traceml.launch.face import Face, Surroundings, choose_face

WATCHED = Surroundings(
    stdin_is_terminal=True,
    stdout_is_terminal=True,
    is_one_terminal=True,
    is_foreground=True,
    term="xterm-256color",
    has_known_term=True,
    has_ci=False,
    rows=24,
    columns=80,
)
NOT_WATCHED: dict[str, dict[str, Any]] = {
    "stdin is a pipe, a file or /dev/null": {"stdin_is_terminal": False, "is_one_terminal": False},
    "stdout is a pipe (`| tee`) or a file": {"stdout_is_terminal": False, "is_one_terminal": False, "rows": 0},
    "stdin is another terminal": {"is_one_terminal": False},
    "in the background": {"is_foreground": False},
    "under nohup": {"stdin_is_terminal": False, "stdout_is_terminal": False, "is_one_terminal": False},
    "TERM=dumb": {"term": "dumb"},
    "no TERM": {"term": ""},
    "a TERM that terminfo does not know": {"term": "nonsense", "has_known_term": False},
    "CI": {"has_ci": True},
    "8 rows": {"rows": 8},
    "a terminal that does not know its size": {"rows": 0, "columns": 0},
}


def test_a_person_at_a_terminal_gets_the_panel() -> None:
    assert choose_face(mode="auto", view="auto", around=WATCHED) is Face.INLINE


@pytest.mark.parametrize("asked", ["inline", "full", "plain"])
def test_a_view_that_is_asked_for_is_had_where_it_can_be(asked: str) -> None:
    assert choose_face(mode="auto", view=asked, around=WATCHED).value == asked


def test_nine_rows_are_enough() -> None:
    assert choose_face(mode="auto", view="auto", around=replace(WATCHED, rows=9)) is Face.INLINE


def test_the_summary_alone_is_no_view_whatever_else_is_said() -> None:
    assert choose_face(mode="summary", view="auto", around=WATCHED) is Face.NONE
    assert choose_face(mode="summary", view="inline", around=WATCHED) is Face.NONE


@pytest.mark.parametrize("why", NOT_WATCHED)
def test_nothing_stands_between_script_and_descriptors_where_nobody_watches(why: str) -> None:
    around = replace(WATCHED, **NOT_WATCHED[why])

    assert choose_face(mode="auto", view="auto", around=around) is Face.NONE


@pytest.mark.parametrize("why", NOT_WATCHED)
def test_there_mode_cli_is_a_plain_line_a_minute(why: str) -> None:
    around = replace(WATCHED, **NOT_WATCHED[why])

    assert choose_face(mode="cli", view="auto", around=around) is Face.PLAIN


@pytest.mark.parametrize("why", NOT_WATCHED)
@pytest.mark.parametrize("asked", ["inline", "full", "plain"])
def test_there_a_view_that_is_asked_for_is_a_plain_line_a_minute(why: str, asked: str) -> None:
    around = replace(WATCHED, **NOT_WATCHED[why])

    assert choose_face(mode="auto", view=asked, around=around) is Face.PLAIN


@pytest.mark.parametrize(("term", "known"), [("xterm", True), ("xterm-256color", True), ("nonsense", False)])
def test_a_terminal_is_known_by_its_entry_in_terminfo(term: str, known: bool) -> None:
    pytest.importorskip("curses")

    assert said_by(f"face.is_known({term!r})") == str(known)


def test_where_terminfo_knows_nothing_at_all_any_terminal_may_be_one() -> None:
    assert said_by("setattr(face, '_COMMON', 'nothing either') or face.is_known('nonsense')") == "True"


def said_by(expression: str) -> str:
    """In a process of its own: curses looks up one terminal and no other."""
    command = [sys.executable, "-c", f"from traceml.launch import face; print({expression})"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_view_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match="one of auto, inline, full, plain"):
        settings.resolve(command_line={"view": "wide"})
