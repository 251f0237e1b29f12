"""Names what is said of ranks that wait for another one longer than their steps ever take, and of ranks that died."""

from __future__ import annotations

from typing import Final, NamedTuple

#: Kinds of events. Of a stall there is one row, which grows while the stall lasts.
HANG: Final = "hang"
WAIT: Final = "wait for a rank"  # long, but it goes on, or may: no alarm
FIRST_DEATH: Final = "first death"
DEATH: Final = "death"
GROWING: Final = (HANG, WAIT)
DEATHS: Final = (FIRST_DEATH, DEATH)

#: What a process does, seen from outside.
BUSY: Final = "busy"
ASLEEP: Final = "asleep"
DELEGATES: Final = "asleep while a process that it started runs"  # `subprocess.run`
GONE: Final = "gone"
ENDED: Final = "ended"


class Stall(NamedTuple):
    """Some ranks wait, and one does not come."""

    kind: str  # HANG | WAIT
    rank: int  # who is waited for; of ranks that all wait, the one that has waited shortest
    step: int
    phase: str
    since_ns: int
    text: str  # "rank 2 in input, asleep; ranks 0, 1 and 3 wait"
    is_own: bool = False  # between its steps, while the others wait in a barrier of the script's own: it may be wanted
