"""Passes the script's bytes on, but for what would break the panel, and knows where between them it may be drawn."""

from __future__ import annotations

import re
import time
from typing import Callable, Final, Match, Optional

from traceml.launch.terminal.column import column_behind
from traceml.launch.terminal.margins import Margins
from traceml.launch.terminal.modes import ALTERNATE, Modes
from traceml.launch.terminal.region import Region

#: What moves, clears, scrolls or switches something; colours and erasing in a line pass unseen, at the speed of C: it
#: looks for one byte, an escape.
_TOKEN: Final = re.compile(
    rb"\x1b(?:\[([0-?]*)([ -/]*)([HfdJhlprsuqt])|([\]PX^_])|(#[0-9])|([()*+][0-9A-Za-z])|([c78=>]))"
)
_UNFINISHED: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[#()*+])?\Z")
_OSC_END: Final = re.compile(rb"[\x07\x18\x1a\x9c]|(?<!\x1b)\x1b\\")
_STRING_END: Final = re.compile(rb"[\x18\x1a]|(?<!\x1b)\x1b\\")
_MAX_TAIL: Final = 256  # longer is no sequence
_MAX_STRING: Final = 4 << 20  # a picture; longer, and it is a stray byte in front of plain output
_MAX_LINE: Final = 4096
_PATIENCE_S: Final = 0.3  # for a saved cursor to be restored
_SYNC_S: Final = 1.0  # terminals do not wait longer for the end of an update
_ORIGIN, _WIDE = 6, 3
_RESTORING: Final = 1049  # the one whose end brings the main screen's cursor back


class Filter:
    """The script's stream, as the terminal may have it while a region is set.

    Holds: without a region everything passes unchanged.

    Args:
        region: Where the script may write; closed and opened again around another screen.
        clock: Monotonic seconds.
    """

    def __init__(self, region: Region, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.modes, self._margins = Modes(), Margins()
        self.wants_redraw = False  # something may have erased the panel; whoever draws it sets this back
        self._region, self._clock = region, clock
        self._tail = b""
        self._string: Optional[re.Pattern[bytes]] = None  # how the string that is open ends
        self._string_bytes = 0
        self._saved_at: Optional[float] = None
        self._synchronized_at = 0.0
        self._line, self._line_start = b"", 0  # what stands on the cursor's line, as far as it is known

    def feed(self, data: bytes) -> bytes:
        """What the terminal gets for these bytes of the script's; an unfinished sequence waits for its rest."""
        data = self._tail + data
        self._tail = b""
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            if self._string is not None:
                at = self._pass_string(data, at, parts)
                continue
            found = _TOKEN.search(data, at)
            if found is None:
                self._pass_rest(data[at:], parts)
                break
            parts.append(data[at : found.start()])
            at = found.end()
            parts.append(self._take(found))
        passed = b"".join(parts)
        self._follow(passed)
        shifts = (passed.rfind(b"\x0e"), passed.rfind(b"\x0f"))
        if shifts != (-1, -1):
            self.modes.other("shift", b"\x0f", on=shifts[0] > shifts[1])
        return passed

    def flush(self) -> bytes:
        """What was held back, at the end of the output."""
        tail, self._tail = self._tail, b""
        return tail

    def widen(self) -> bytes:
        """The program's own screen has another size: it scrolls in all of it, as on a terminal that is resized."""
        is_possible = self.modes.alternate and self._string is None
        return self._margins.widen(is_cursor_kept=True) if is_possible else b""

    def leave(self) -> bytes:
        """To the main screen, whose whole height scrolls; `return_` goes back."""
        if not self.modes.alternate:
            return b""
        return (b"\x1b[r" if self._margins.again else b"") + b"\x1b[?%dl" % self.modes.alternate

    def return_(self, *, is_resized: bool) -> bytes:
        """To the program's own screen, and to its region where the terminal has its size still."""
        if not self.modes.alternate:
            return b""
        if is_resized:
            self._margins.forget()
        return b"\x1b[?%dh" % self.modes.alternate + self._margins.again

    @property
    def is_between(self) -> bool:
        """Whether a sequence or character has just ended, on the main screen, with nothing of the script's pending."""
        now = self._clock()
        if self._tail or self._string is not None or self.modes.alternate:
            return False
        if self.modes.is_synchronized and now - self._synchronized_at < _SYNC_S:
            return False
        if self._saved_at is not None and now - self._saved_at < _PATIENCE_S:
            return False
        return not _is_cut(self._line)

    def column(self) -> int:
        """The cursor's column; the terminal's width where the next character would wrap."""
        text = self._line.decode("utf-8", "replace")
        return column_behind(text, columns=self._region.columns, start=self._line_start)

    def last_character(self) -> Optional[str]:
        """What stands before the cursor, when it is one cell and nothing but it was written last."""
        last = self._line.decode("utf-8", "replace")[-1:]
        return last if last and last.isprintable() and column_behind(last, columns=80) == 1 else None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _follow(self, passed: bytes) -> None:
        newest = passed.rfind(b"\r")
        if newest >= 0:
            self._line, self._line_start = passed[newest:], 0
        else:
            self._line += passed
        if len(self._line) > _MAX_LINE:
            cut = _cut_of(self._line)
            whole = self._line[: len(self._line) - cut]
            self._line_start = column_behind(
                whole.decode("utf-8", "replace"), columns=self._region.columns, start=self._line_start
            )
            self._line = self._line[len(whole) :]

    def _pass_rest(self, rest: bytes, parts: list[bytes]) -> None:
        unfinished = _UNFINISHED.search(rest)
        if unfinished is not None and len(rest) - unfinished.start() <= _MAX_TAIL:
            self._tail = rest[unfinished.start() :]
            rest = rest[: unfinished.start()]
        parts.append(rest)

    def _pass_string(self, data: bytes, at: int, parts: list[bytes]) -> int:
        assert self._string is not None
        found = self._string.search(data, at)
        end = len(data) if found is None else found.end()
        if found is None and data.endswith(b"\x1b"):
            self._tail, end = b"\x1b", end - 1  # perhaps the first half of its end
        parts.append(data[at:end])
        self._string_bytes += end - at
        if found is not None or self._string_bytes > _MAX_STRING:
            self._string = None
        return len(data) if found is None else end

    def _take(self, found: Match[bytes]) -> bytes:
        """What one sequence becomes."""
        parameters, between, final, string, lines, charset, two = found.groups()
        whole = found.group()
        if final is not None:
            return self._control(whole, parameters, between + final)
        if string is not None:
            self._string, self._string_bytes = (_OSC_END if string == b"]" else _STRING_END), 0
        elif lines == b"#8" and self._region.is_open:
            return b""  # fills the screen and resets the region
        elif charset is not None:
            self.modes.other("charset", b"\x1b(B\x0f", on=charset != b"(B")
        elif two is not None:
            return self._escape(whole, two)
        return whole

    def _escape(self, whole: bytes, two: bytes) -> bytes:
        if two == b"7":
            self._saved_at = self._clock()
        elif two == b"8":
            self._saved_at = None
        elif two in b"=>":
            self.modes.other("keypad", b"\x1b>", on=two == b"=")
        elif two == b"c":
            return self._reset(whole)
        return whole

    def _reset(self, whole: bytes) -> bytes:
        """A full reset would take the region along: everything that it does for the script, without that."""
        if not self._region.is_open or self.modes.alternate:
            self.modes = Modes()
            self._margins.forget()
            return whole
        undo = self.modes.undo()
        self.modes, self._saved_at, self.wants_redraw = Modes(), None, True
        return undo + b"\x1b[H\x1b[J"

    def _control(self, whole: bytes, parameters: bytes, final: bytes) -> bytes:
        if final in (b"h", b"l") and parameters.startswith(b"?"):
            return self._switch(parameters[1:], final)
        if final == b"s" and not parameters:
            self._saved_at = self._clock()
        elif final == b"u" and not parameters:
            self._saved_at = None
        elif final == b" q":
            self.modes.other("cursor", b"\x1b[0 q", on=parameters not in (b"", b"0"))
        elif self.modes.alternate:
            return self._on_other_screen(whole, parameters, final)
        elif self._region.is_open:
            return self._on_main_screen(whole, parameters, final)
        return whole

    def _on_other_screen(self, whole: bytes, parameters: bytes, final: bytes) -> bytes:
        if final in (b"H", b"f", b"d"):
            self._margins.address(parameters, rows=self._region.rows)
        elif final == b"r" and not parameters.startswith(b"?"):
            return self._margins.take(parameters, rows=self._region.rows)
        elif final == b"!p":
            self._margins.forget()
        return whole

    def _on_main_screen(self, whole: bytes, parameters: bytes, final: bytes) -> bytes:
        if final in (b"H", b"f", b"d"):
            return self._clamped(whole, parameters, final)
        if final == b"J":
            self.wants_redraw = True
        elif final == b"r" and not parameters.startswith(b"?"):
            return b"\x1b[H"  # it homes the cursor, too
        elif final == b"!p":
            undo = self.modes.undo()
            self.modes = Modes()
            return undo
        return whole

    def _clamped(self, whole: bytes, parameters: bytes, final: bytes) -> bytes:
        row, *rest = parameters.split(b";")
        limit = self._region.script_rows
        if not row.isdigit() or int(row) <= limit:
            return whole
        return b"\x1b[" + b";".join([b"%d" % limit, *rest]) + final

    def _switch(self, parameters: bytes, final: bytes) -> bytes:
        on = final == b"h"
        before, after, kept = b"", b"", []
        for word in parameters.split(b";"):
            number = int(word) if word.isdigit() else 0
            if number in (_ORIGIN, _WIDE) and self._region.is_open:
                continue  # rows counted from the region's first one; clears the screen and resets the region
            if number in ALTERNATE and on and not self.modes.alternate:
                self._margins.enter(old_rows=self._region.script_rows if self._region.is_open else 0)
                before = self._region.close()
            elif number in ALTERNATE and not on and self.modes.alternate:
                before, after = self._margins.widen(is_cursor_kept=number != _RESTORING), self._region.open()
                self.wants_redraw = True
            if number == 1048:  # noqa: PLR2004  # saves and restores the cursor
                self._saved_at = self._clock() if on else None
            self.modes.set(number, on=on)
            if self.modes.is_synchronized:
                self._synchronized_at = self._clock()
            kept.append(word)
        return before + (b"\x1b[?" + b";".join(kept) + final if kept else b"") + after


def _cut_of(data: bytes) -> int:
    """How many bytes at the end begin a character that is not whole."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:  # noqa: PLR2004  # inside a character
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1  # noqa: PLR2004  # UTF-8
        return back if length > back else 0
    return 0


def _is_cut(data: bytes) -> bool:
    return _cut_of(data) > 0
