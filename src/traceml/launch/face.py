"""Chooses how a run is shown in the terminal, before anything is drawn."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import Final, Mapping

MIN_ROWS: Final = 9  # five for the script, four for the smallest panel
MIN_COLUMNS: Final = 20
_DUMB: Final = ("", "dumb", "unknown")
_COMMON: Final = "xterm"  # every terminfo has it
_NO: Final = ("", "0", "false", "no")


class Face(Enum):
    """What stands between the script and its terminal, and what is said meanwhile."""

    INLINE = "inline"  # a pty for the script, a panel below its output
    FULL = "full"  # a pty for the script, the whole screen for us
    PLAIN = "plain"  # nothing between; a line a minute on stderr
    NONE = "none"  # nothing between, nothing said before the card


@dataclass(frozen=True)
class Surroundings:
    """What decides which views are possible here."""

    stdin_is_terminal: bool
    stdout_is_terminal: bool
    is_one_terminal: bool  # stdin and stdout are the same one
    is_foreground: bool  # in raw mode a background job would be stopped
    term: str
    has_known_term: bool  # terminfo has an entry for it
    has_ci: bool
    rows: int
    columns: int

    @property
    def can_draw(self) -> bool:
        """Whether a panel can be drawn, and keys be passed on."""
        has_terminal = self.stdin_is_terminal and self.stdout_is_terminal and self.is_one_terminal
        is_plain = self.has_ci or is_dumb(self.term) or not self.has_known_term
        return has_terminal and self.is_foreground and not is_plain and self.has_room

    @property
    def has_room(self) -> bool:
        """Whether panel and script fit."""
        return self.rows >= MIN_ROWS and self.columns >= MIN_COLUMNS


def choose_face(*, mode: str, view: str, around: Surroundings) -> Face:
    """How a run is shown.

    Args:
        mode: `auto`, `cli` or `summary`, as asked.
        view: `auto`, `inline`, `full` or `plain`, as asked. A view that was asked for, and cannot be had, is a line a
            minute.
        around: The terminal and its surroundings.
    """
    if mode == "summary":
        return Face.NONE
    if around.can_draw and view != "plain":
        return Face.FULL if view == "full" else Face.INLINE
    return Face.PLAIN if mode == "cli" or view != "auto" else Face.NONE


def look_around(environ: Mapping[str, str]) -> Surroundings:
    """What there is at descriptors 0 and 1, and in the environment."""
    rows, columns = _size()
    term = environ.get("TERM", "")
    return Surroundings(
        stdin_is_terminal=_is_terminal(0),
        stdout_is_terminal=_is_terminal(1),
        is_one_terminal=is_same_terminal(0, 1),
        is_foreground=is_foreground(0),
        term=term,
        has_known_term=_is_terminal(1) and is_known(term),
        has_ci=environ.get("CI", "").lower() not in _NO,
        rows=rows,
        columns=columns,
    )


def is_dumb(term: str) -> bool:
    """Whether a type of terminal moves no cursor."""
    return term in _DUMB


def is_known(term: str) -> bool:
    """Whether terminfo has an entry for a type of terminal; yes where there is no terminfo to ask, or an empty one."""
    try:
        import curses  # noqa: PLC0415  # it comes with a library that not every Python has
    except ImportError:
        return True
    for name in (term, _COMMON):
        try:
            curses.setupterm(name, 1)
        except (curses.error, ValueError):
            continue
        return name == term
    return True


def is_same_terminal(fd: int, other: int) -> bool:
    """Whether two descriptors are the same terminal."""
    try:
        return _is_terminal(fd) and os.fstat(fd).st_rdev == os.fstat(other).st_rdev and _is_terminal(other)
    except OSError:
        return False


def is_foreground(fd: int) -> bool:
    """Whether our process group has the terminal."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def _size() -> tuple[int, int]:
    try:
        found = os.get_terminal_size(1)
    except OSError:
        return 0, 0
    return found.lines, found.columns
