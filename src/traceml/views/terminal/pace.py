"""Follows the step number: how many steps a second now, and for how long none has ended."""

from __future__ import annotations

from collections import deque
from typing import Deque, Final, NamedTuple, Optional

_WINDOW_S: Final = 20.0


class Moment(NamedTuple):
    """What only somebody who keeps looking knows of a run."""

    steps_per_s: Optional[float] = None  # over the last 20 s or so; None: too few steps were seen
    quiet_s: float = 0.0  # since the step number last changed


class Pace:
    """The step numbers seen of late: neither the time before the first one counts, nor that of a stopped process."""

    def __init__(self) -> None:
        # When a new number was first seen, by a clock that stands while the process does; one before the window too.
        self._seen: Deque[tuple[float, int]] = deque()
        self._changed_s: Optional[float] = None
        self._looked_s: Optional[float] = None
        self._stood_s = 0.0

    def feed(self, now_s: float, step: Optional[int], *, is_halted: bool = False) -> Moment:
        """Takes in the number of the last finished step, None before the first; how things are at `now_s`.

        Args:
            now_s: Now.
            step: Of the rank that is furthest.
            is_halted: Whether a process stands still at this moment: stopped, or in a debugger.
        """
        step = step or 0
        seen = self._seen
        if is_halted and self._looked_s is not None:
            self._stood_s += now_s - self._looked_s
        self._looked_s = now_s
        if self._changed_s is None:
            self._changed_s = now_s
        if seen and step < seen[-1][1]:
            seen.clear()  # another attempt
            self._changed_s = now_s
        walked_s = now_s - self._stood_s
        if step and (not seen or step != seen[-1][1]):
            seen.append((walked_s, step))
            self._changed_s = now_s
        while len(seen) > 2 and seen[1][0] <= walked_s - _WINDOW_S:  # noqa: PLR2004  # two numbers make a pace
            seen.popleft()
        return Moment(self._rate(), now_s - self._changed_s)

    def _rate(self) -> Optional[float]:
        if not self._seen:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None
