"""Models what a script printed as the lines a terminal would show: colours and carriage returns right, nothing else."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import deque
from functools import lru_cache
from typing import Final, Optional

from traceml.views.terminal.sgr import NUMBER, PLAIN, Look, changed
from traceml.views.text.columns import head, width_of

MAX_LINES: Final = 5_000
REACH: Final = 8  # lines from the end that a cursor can still get back to: nested progress bars
MAX_CELLS: Final = 4_096
_MAX_SKIPPED: Final = 1 << 20  # characters of a picture; who never ends one is not believed
_TAB: Final = 8
# A run of text at once, a whole sequence, or one control character.
_TOKEN: Final = re.compile(
    r"[^\x00-\x1f\x7f-\x9f]+|\x1b\[[0-?]{0,64}[ -/]{0,4}[@-~]|\x1b[ -/]{1,4}[0-~]|\x1b.|.", re.DOTALL
)
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,4}|[ -/]{0,4})\Z")
_TITLE_END: Final = re.compile("[\x07\x18\x1a\x1b\n\r]")
_PICTURE_END: Final = re.compile("[\x18\x1a\x1b]")
_STRINGS: Final = frozenset("]PX^_")
_PAIR: Final = 2  # an escape and a character
_LONGEST: Final = 70  # an unfinished sequence
_PRIVATE: Final = frozenset("<=>?")  # they make another sequence of it


Run = tuple[str, Look]
Line = tuple[Run, ...]


class _Open:
    """A line that can still change."""

    __slots__ = ("num_cells", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.num_cells = 0


class Transcript:
    r"""The lines of a script's output, as a terminal without an edge would show them.

    Knows `\r`, `\n`, `\b`, tabs, and of the escape sequences A, B, C, D, G (moves), K (erase in the line), m (colour).
    All else is swallowed: titles, clipboards, mouse modes, other screens and resets reach nobody. Keeps the last 5,000
    lines, each cut at 4,096 cells; of these the last 8 can still be changed by a cursor that goes up. Half a wide
    character that is written over becomes a blank.
    """

    def __init__(self) -> None:
        self.num_lines = 1  # all that ever were, the last one too
        self.num_changes = 0  # tells a face whether to draw again
        self._done: deque[Line] = deque(maxlen=MAX_LINES - REACH)
        self._open = [_Open()]
        self._row = self._column = 0
        self._look = PLAIN
        self._tail = ""
        self._end: Optional[re.Pattern[str]] = None  # of the string that is being skipped
        self._num_skipped = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Takes more of the output, cut anywhere."""
        text = self._tail + self._decoder.decode(data)
        self._tail = ""
        self.num_changes += 1
        at = 0
        while at < len(text):
            at = self._skip(text, at) if self._end else self._read(text, at)

    def rows(self, first: int, last: int) -> list[Line]:
        """The lines from number `first` to before `last`, counted from 0, as far as they are there."""
        start = self.num_lines - len(self._open)  # number of the first open line
        oldest = start - len(self._done)
        rows = [self._done[number - oldest] for number in range(max(first, oldest), min(last, start))]
        return rows + [tuple(self._open[n - start].runs) for n in range(max(first, start), min(last, self.num_lines))]

    @property
    def first_kept(self) -> int:
        """The number of the oldest line that is still there."""
        return self.num_lines - len(self._open) - len(self._done)

    @property
    def num_shown(self) -> int:
        """Lines worth drawing: all but an empty last one."""
        return self.num_lines - (0 if self._open[-1].runs else 1)

    def _read(self, text: str, start: int) -> int:
        """Everything up to the end, or to where an escape needs another look; returns where that is."""
        for found in _TOKEN.finditer(text, start):
            token = found.group()
            first = token[0]
            if first == "\x1b":
                on = self._escape(text, found.start(), token)
                if on != found.end() or self._end is not None:
                    return on
            elif first >= " " and not "\x7f" <= first <= "\x9f":
                self._put(token)
            else:
                self._control(first)
        return len(text)

    def _control(self, ch: str) -> None:
        if ch == "\n":
            self._newline()
        elif ch == "\r":
            self._column = 0
        elif ch == "\b":
            self._column = max(0, self._column - 1)
        elif ch == "\t":
            self._column = min(MAX_CELLS, (self._column // _TAB + 1) * _TAB)

    def _escape(self, text: str, start: int, token: str) -> int:
        """Obeys a sequence; returns where to go on, which is its end unless a string or the end of the data follows."""
        if len(text) - start <= _LONGEST and _UNFINISHED.match(text, start):
            self._tail = text[start:]
            return len(text)
        if len(token) == _PAIR and token[1] < " ":  # the escape is swallowed, the control character counts
            return start + 1
        if len(token) == _PAIR and token[1] in _STRINGS:
            self._end = _TITLE_END if token[1] == "]" else _PICTURE_END
            self._num_skipped = 0
            return start + _PAIR
        if len(token) > _PAIR and token[1] == "[":
            self._obey(token[-1], token[2:-1])
        return start + len(token)

    def _skip(self, text: str, at: int) -> int:
        assert self._end is not None
        found = self._end.search(text, at)
        if found is None:
            self._num_skipped += len(text) - at
            if self._end is _PICTURE_END and self._num_skipped > _MAX_SKIPPED:
                self._end = None
            return len(text)
        self._end = None
        # An escape begins the string's terminator, or another sequence; a newline is the script's own.
        return found.start() if found.group() in "\x1b\n\r" else found.end()

    def _obey(self, what: str, parameters: str) -> None:
        if what == "m" and parameters[:1] not in _PRIVATE:
            self._look = changed(self._look, parameters)
        elif what in "ABCDG" and (not parameters or NUMBER.match(parameters)):
            self._move(what, int(parameters or "1"))
        elif what == "K":
            self._erase(parameters)

    def _move(self, what: str, number: int) -> None:
        number = max(1, number)
        if what == "A":
            self._row = max(0, self._row - number)
        elif what == "B":
            self._row = min(REACH - 1, self._row + number)
            while self._row >= len(self._open):
                self._open.append(_Open())
                self.num_lines += 1
        elif what == "C":
            self._column = min(MAX_CELLS, self._column + number)
        elif what == "D":
            self._column = max(0, self._column - number)
        else:
            self._column = min(MAX_CELLS, number - 1)

    def _newline(self) -> None:
        self._column = 0
        self._row += 1
        if self._row < len(self._open):
            return
        self._open.append(_Open())
        self.num_lines += 1
        if len(self._open) > REACH:
            self._done.append(tuple(self._open.pop(0).runs))
            self._row -= 1

    def _erase(self, parameters: str) -> None:
        line = self._open[self._row]
        if parameters in ("", "0"):
            if self._column < line.num_cells:
                line.runs, line.num_cells = _left_of(line.runs, self._column), self._column
        elif parameters == "1":
            if self._column + 1 < line.num_cells:
                line.runs = [(" " * (self._column + 1), PLAIN), *_right_of(line.runs, self._column + 1)]
            else:
                line.runs, line.num_cells = [], 0
        elif parameters == "2":
            line.runs, line.num_cells = [], 0

    def _put(self, text: str) -> None:
        if not text.isprintable():
            text = _printable(text)
        num_cells = width_of(text)
        line, column, look = self._open[self._row], self._column, self._look
        if column + num_cells > MAX_CELLS:
            text = head(text, MAX_CELLS - column)
            num_cells = width_of(text)
            if not text:
                self._column = MAX_CELLS
                return
        end = column + num_cells
        if column >= line.num_cells:
            _add(line.runs, column - line.num_cells, text, look)
            line.num_cells = end
        elif column == 0 and end >= line.num_cells:
            line.runs, line.num_cells = [(text, look)], end
        else:
            right = _right_of(line.runs, end) if end < line.num_cells else []
            line.runs = [*_left_of(line.runs, column), (text, look), *right]
            line.num_cells = max(end, line.num_cells)
        self._column = end


def _add(runs: list[Run], num_blanks: int, text: str, look: Look) -> None:
    if num_blanks:
        _add(runs, 0, " " * num_blanks, PLAIN)
    if runs and runs[-1][1] is look:
        runs[-1] = (runs[-1][0] + text, look)
    else:
        runs.append((text, look))


def _left_of(runs: list[Run], column: int) -> list[Run]:
    """What stands before a column; half a wide character there becomes a blank."""
    kept: list[Run] = []
    used = 0
    for text, look in runs:
        num_cells = width_of(text)
        if used + num_cells <= column:
            kept.append((text, look))
            used += num_cells
            continue
        part = head(text, column - used)
        used += width_of(part)
        kept += [(part + " " * (column - used), look)] if column > used or part else []
        break
    return kept


def _right_of(runs: list[Run], column: int) -> list[Run]:
    """What stands from a column on; half a wide character there becomes a blank."""
    kept: list[Run] = []
    used = 0
    for text, look in runs:
        num_cells = width_of(text)
        start, used = used, used + num_cells
        if used <= column:
            continue
        if start >= column:
            kept.append((text, look))
            continue
        part = head(text, column - start)
        behind = text[len(part) :]
        if start + width_of(part) < column and behind:
            behind = " " * (width_of(behind[0]) - (column - start - width_of(part))) + behind[1:]
        kept.append((behind, look))
    return kept


def _printable(text: str) -> str:
    """Blanks for blanks, nothing for what turns or hides other characters."""
    return "".join(ch if ch.isprintable() else _instead(ch) for ch in text)


@lru_cache(maxsize=1024)
def _instead(ch: str) -> str:
    kind = unicodedata.category(ch)
    return " " if kind == "Zs" else ch if kind == "Co" else ""
