"""Follows what a rank prints: reads only what its log has grown by, and models it as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Optional

from traceml.errors import RunError
from traceml.schema import units
from traceml.views.terminal.lines import Line, Transcript

if TYPE_CHECKING:
    from traceml.report.output import Mark
    from traceml.report.run import Run

#: At most, of one reading: some 2,500 lines, 2 % of a core. A script that prints more is shown by its end.
MAX_BYTES: Final = 1 << 18
_SKIPPED: Final = "\x1b[0m\r\n\x1b[2m[{} of output left out here]\x1b[0m\r\n"


class Follower:
    """The output of one rank, as far as it was read."""

    def __init__(self, run: Run, rank: int = 0) -> None:
        self.rank = rank
        self.trouble = ""  # why there is no output
        self._run = run
        self._transcript = Transcript()
        self._mark: Optional[Mark] = None

    def poll(self) -> bool:
        """Reads what is new; whether anything was. A log that is gone leaves what was read."""
        try:
            found = self._run.printed(self.rank, self._mark, MAX_BYTES)
        except RunError as error:
            if self._mark is not None:
                return False
            before, self.trouble = self.trouble, _reason(error)
            return self.trouble != before
        if found.is_anew and self._mark is not None:
            self._transcript = Transcript()
        had_trouble, self.trouble = bool(self.trouble), ""
        self._mark = found.mark
        data = found.data
        if found.num_skipped_bytes:
            data = data[data.find(b"\n") + 1 :]  # its first line is half a one
            self._transcript.feed(_SKIPPED.format(units.size(found.num_skipped_bytes)).encode())
        if data:
            self._transcript.feed(data)
        return bool(data) or had_trouble or found.is_anew

    @property
    def num_lines(self) -> int:
        """The lines so far, also those that are no longer kept."""
        return self._transcript.num_shown

    @property
    def is_empty(self) -> bool:
        """Whether the rank has printed nothing, or nothing is known of what it printed."""
        return not self._transcript.num_shown

    def lines(self, height: int, *, back: int = 0) -> list[Line]:
        """`height` lines, the last of which is `back` lines before the newest; fewer where there are not so many."""
        last = max(self._transcript.num_shown - back, min(height, self._transcript.num_shown))
        return self._transcript.rows(last - height, last)

    def most_back(self, height: int) -> int:
        """How far back there is something to be seen."""
        return max(0, self._transcript.num_shown - self._transcript.first_kept - height)


def _reason(error: RunError) -> str:
    return "not kept; `traceml run --save-output` keeps it" if error.slug == "no-output" else str(error)
