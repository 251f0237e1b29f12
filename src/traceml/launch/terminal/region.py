"""Keeps the last rows of the terminal for the panel: the script's output scrolls above them."""

from __future__ import annotations

from typing import Final, Sequence

_SMALL, _MIDDLE, _LARGE = 4, 8, 11
_MIDDLE_ROWS: Final = 18
_LARGE_ROWS: Final = 30
_SCRIPT_ROWS: Final = 5
#: IND and back: on the last row nothing would be below, and the script's own line erased in its place.
_CLOSING: Final = b"\x1b7\x1b[r\x1b8\x1bD\x1b[A\x1b7\x1b[E\x1b[J\x1b8"
#: The same, where nobody knows any more what the script had switched on.
FAREWELL: Final = b"\x1b[?2026l\x1b[0m\x1b[?25h\x1b[?7h" + _CLOSING
_NARROW: Final = 60


def panel_rows(rows: int, columns: int) -> int:
    """How many rows the panel has: 11, 8, 4, or 0 where the script would keep fewer than 5."""
    if rows < _SMALL + _SCRIPT_ROWS:
        return 0
    if columns < _NARROW or rows < _MIDDLE_ROWS:
        return _SMALL
    return _MIDDLE if rows < _LARGE_ROWS else _LARGE


class Region:
    """The bytes that set the scroll region, draw below it, and take it away; it writes nothing itself.

    The region begins in the first row: only then do its lines reach the terminal's scroll-back. Everything below the
    cursor's line is ours, so it can be erased whatever a resize made of it.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.is_open = False
        self.columns = columns
        self._rows, self._num = rows, panel_rows(rows, columns)
        self._drawn: list[str] = []

    @property
    def num_rows(self) -> int:
        """The panel's rows; 0 where there is no room, or it was given up."""
        return self._num

    @property
    def script_rows(self) -> int:
        """The script's."""
        return self._rows - self._num

    @property
    def rows(self) -> int:
        """The terminal's."""
        return self._rows

    def resize(self, rows: int, columns: int) -> bytes:
        """The terminal has another size now; the region is closed, and may be opened again."""
        closing = self.close()
        self._rows, self.columns, self._num = rows, columns, panel_rows(rows, columns)
        return closing

    def give_up(self) -> bytes:
        """No panel any more."""
        closing = self.close()
        self._num = 0
        return closing

    def open(self) -> bytes:
        """Makes room below the cursor, and keeps the script above it. The cursor stays on its line, in its column."""
        if self._num == 0 or self.is_open:
            return b""
        self.is_open, self._drawn = True, []
        # IND, not a newline: it keeps the column. The region homes the cursor: hence saved, and restored.
        return b"\x1bD" * self._num + b"\x1b[%dA" % self._num + b"\x1b7\x1b[1;%dr\x1b8" % self.script_rows

    def close(self) -> bytes:
        """Erases the panel; the whole screen scrolls again."""
        if not self.is_open:
            return b""
        self.is_open = False
        return _CLOSING

    def draw(self, rows: Sequence[str], *, shown: bytes = b"\x1b[?25h\x1b[?7h", force: bool = False) -> bytes:
        """The rows that changed since they were drawn last, in one update; nothing where none did.

        Args:
            rows: The panel's, SGR sequences the only ones in them.
            shown: What brings back what was switched off for it: the cursor, and wrapping.
            force: All rows, changed or not.
        """
        if not self.is_open:
            return b""
        wanted = [*rows[: self._num], *[""] * (self._num - len(rows))]
        before = [] if force else self._drawn
        changed = [(at, row) for at, row in enumerate(wanted) if at >= len(before) or before[at] != row]
        if not changed:
            return b""
        self._drawn = wanted
        first = self.script_rows + 1
        text = "".join(f"\x1b[{first + at};1H\x1b[0m{row}\x1b[0m\x1b[K" for at, row in changed)
        start, end = b"\x1b[?2026h\x1b7\x1b[?25l\x1b[?7l", b"\x1b8" + shown + b"\x1b[?2026l"
        return start + text.encode("utf-8", "replace") + end
