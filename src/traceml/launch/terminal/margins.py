"""Gives a program on a screen of its own all rows to scroll in, though its pty had those above the panel at first."""

from __future__ import annotations

_ALL = b"\x1b[r"


class Margins:
    """The scroll region that a full-screen program sets, and what of it the terminal may have.

    Its pty has the rows above the panel until we have read that it switched screens, so its first region can be one of
    those rows. A terminal that grows makes the region whole again, and programs rely on it: ours did not grow. So a
    region of exactly the old rows means all, until the program addresses a row below them: that shows that it knows.
    """

    def __init__(self) -> None:
        self._old_rows = 0
        self._set = b""  # the region that is not the whole screen

    def enter(self, *, old_rows: int) -> None:
        """The program switches to a screen of its own; its pty has that many rows, 0: as many as the terminal."""
        self._old_rows, self._set = old_rows, b""

    def forget(self) -> None:
        """The terminal was reset."""
        self._set = b""

    def address(self, parameters: bytes, *, rows: int) -> None:
        """It moves the cursor to a row."""
        if self._old_rows < _number(parameters.partition(b";")[0], 1) <= rows:
            self._old_rows = 0

    def take(self, parameters: bytes, *, rows: int) -> bytes:
        """What becomes of a region that it sets on a terminal of so many rows."""
        first, _, last = parameters.partition(b";")
        top, bottom = _number(first, 1), min(_number(last, rows), rows)
        if top == 1 and bottom in (self._old_rows, rows):
            self._set = b""
            return _ALL
        self._set = b"\x1b[%sr" % parameters
        return self._set

    def widen(self, *, is_cursor_kept: bool = False) -> bytes:
        """All rows again. The cursor goes home, unless it is kept, at the cost of the one that the program saved."""
        if not self._set:
            return b""
        self._set = b""
        return b"\x1b7" + _ALL + b"\x1b8" if is_cursor_kept else _ALL

    @property
    def again(self) -> bytes:
        """What sets the region again, behind another one's use of the terminal."""
        return self._set


def _number(word: bytes, otherwise: int) -> int:
    return int(word) if word.isdigit() and int(word) else otherwise
