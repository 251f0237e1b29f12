"""Remembers which ranks of a restartable job came as far as torch: an attempt of which none trained leaves no ring."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Collection, NamedTuple

from traceml.collect.attempts import MAX_DEATHS, how_ended
from traceml.schema import phases
from traceml.schema.attempts import Attempt, RankDeath
from traceml.wire.ringfolder import ARRIVAL

if TYPE_CHECKING:
    from pathlib import Path

    from traceml.collect.life import Life


class _Arrival(NamedTuple):
    attempt: int
    rank: int
    world_size: int
    pid: int
    at_ns: int


class Arrivals:
    """The ranks that have said so in the run's ring folder, each with a file of its own; their processes are watched.

    Args:
        life: Their processes.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._found: dict[str, _Arrival] = {}

    def look(self, path: Path) -> None:
        """Takes in what a file of the ring folder says, where it is such a file."""
        told = ARRIVAL.fullmatch(path.name)
        if told is None or path.name in self._found:
            return
        try:
            written_at = path.stat().st_mtime
        except OSError:
            return
        attempt, rank, world_size, pid = map(int, told.groups())
        self._life.watch(pid, born_before=written_at)
        at_ns = time.perf_counter_ns() - round((time.time() - written_at) * 1e9)
        self._found[path.name] = _Arrival(attempt, rank, world_size, pid, at_ns)

    def attempts(self, trained: Collection[int], *, now_ns: int) -> list[Attempt]:
        """The attempts that ended before any rank trained, the oldest first.

        Args:
            trained: The numbers of those that have rings.
            now_ns: Now.
        """
        arrived = {arrival.attempt for arrival in self._found.values()}
        numbers = sorted(arrived - (set(trained) or {max(arrived, default=0)}))  # the last one is the run's own
        found = [[one for one in self._found.values() if one.attempt == number] for number in numbers]
        return [self._attempt(ranks, now_ns) for ranks in found if all(self._life.is_gone(one.pid) for one in ranks)]

    def _attempt(self, ranks: list[_Arrival], now_ns: int) -> Attempt:
        deaths = sorted((self._death(one, now_ns) for one in ranks), key=lambda death: (death.at_ns, death.rank))
        return Attempt(
            number=ranks[0].attempt,
            world_size=max(one.world_size for one in ranks),
            num_steps=0,
            started_ns=min(one.at_ns for one in ranks),
            ended_ns=deaths[-1].at_ns,
            deaths=tuple(death for death in deaths if death.how != how_ended(0))[:MAX_DEATHS],
        )

    def _death(self, one: _Arrival, now_ns: int) -> RankDeath:
        gone_ns, how = self._life.gone_ns(one.pid), how_ended(self._life.wait_status(one.pid))
        return RankDeath(one.rank, 1, phases.BETWEEN_STEPS, max(one.at_ns, gone_ns or now_ns), how)
