"""Has the panel's rows as they stand: asks the collector for them, and keeps the last ones when it does not answer."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Callable, Final, Optional, Protocol

from traceml.schema.panel import PanelRequest

if TYPE_CHECKING:
    from traceml.launch.collector import Answer

ASK_S: Final = 0.5
_SILENT_S: Final = 5.0
#: What may not reach a terminal from a row: all that is no colour.
_ALIEN: Final = re.compile(r"\x1b(?!\[[0-9;:]*m)|[\x00-\x1a\x1c-\x1f\x7f-\x9f]")


class Asked(Protocol):
    """The collector, as far as the panel knows it."""

    @property
    def fds(self) -> tuple[int, ...]:
        """Where answers come."""

    def ask_panel(self, request: PanelRequest) -> bool:
        """Asks for the rows; whether it was asked."""

    def answer(self) -> Answer:
        """What came."""


class Panel:
    """The rows, asked for twice a second and never waited for.

    Args:
        keeper: The run's collector.
        title: What stands there before the first answer.
        clock: Monotonic seconds.
    """

    def __init__(self, keeper: Asked, *, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._keeper, self._clock = keeper, clock
        self._rows: tuple[str, ...] = (title,)
        self._asked: Optional[PanelRequest] = None
        self._next = clock()
        self._answered_at = clock()

    @property
    def fds(self) -> tuple[int, ...]:
        """Where answers come."""
        return self._keeper.fds

    @property
    def left_s(self) -> float:
        """Until the next question."""
        return max(0.0, self._next - self._clock())

    def ask(self, request: PanelRequest) -> None:
        """Asks when it is time, or when the room is another one than before."""
        now = self._clock()
        if now < self._next and request == self._asked:
            return
        self._next = now + ASK_S
        self._asked = request
        self._keeper.ask_panel(request)

    def wake(self) -> None:
        """We have not asked for a while: nobody was silent."""
        self._next = self._answered_at = self._clock()

    def hear(self) -> bool:
        """Takes an answer in; call it when `fds` are readable. Whether there are new rows."""
        rows = self._keeper.answer().panel
        if rows is None:
            return False
        self._rows = tuple(_ALIEN.sub("", row) for row in rows)
        self._answered_at = self._clock()
        return True

    @property
    def is_silent(self) -> bool:
        """Whether nobody has answered for 5 s."""
        return self._clock() - self._answered_at >= _SILENT_S

    @property
    def rows(self) -> tuple[str, ...]:
        """What is to be drawn: where nobody answers any more, that stands in the first row."""
        silent_s = self._clock() - self._answered_at
        if not self.is_silent:
            return self._rows
        return (f" TraceML: no word from the collector for {int(silent_s)} s", *self._rows[1:])
