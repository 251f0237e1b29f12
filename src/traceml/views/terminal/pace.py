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
    """The step numbers seen of late."""

    def __init__(self) -> None:
        self._seen: Deque[tuple[float, int]] = (
            deque()
        )  # when a new number was first seen; the last one before the window too

    def feed(self, now_s: float, step: Optional[int]) -> Moment:
        """Takes in the number of the last finished step, None before the first; how things are at `now_s`."""
        step = step or 0
        seen = self._seen
        if seen and step < seen[-1][1]:
            seen.clear()  # another attempt
        if not seen or step != seen[-1][1]:
            seen.append((now_s, step))
        while len(seen) > 2 and seen[1][0] <= now_s - _WINDOW_S:  # noqa: PLR2004  # two numbers make a pace
            seen.popleft()
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        rate = (last - first) / (last_s - first_s) if last_s > first_s else None
        return Moment(rate, now_s - last_s)
