"""Follows one ring: its messages and edges become records, in bounded portions."""

from __future__ import annotations

import traceback
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Iterator, Optional

from traceml.analysis.steps import StepBuilder, Taken
from traceml.schema.records import Halt, LiveSlot, MemoryReading, RankState, Watching
from traceml.wire.ring import EdgeBatch, RingReader

if TYPE_CHECKING:
    from pathlib import Path

PORTION_EDGES: Final = 32_768  # 3,000 steps: what is held in memory between two transactions
_MESSAGES: Final = "#messages"  # behind the ring's name: the cursor of its messages


@dataclass(frozen=True)
class Portion:
    """What one transaction stores of one ring."""

    taken: Taken
    memory: tuple[MemoryReading, ...]
    cursors: dict[str, str]
    has_news: bool = False  # a message or an edge, even when no record is finished by it

    @property
    def is_empty(self) -> bool:
        """Whether nothing in it is worth a transaction of its own."""
        return not (self.taken.steps or self.taken.segments or self.taken.events or self.memory)


class RingTail:
    """One ring and the builder it feeds. Loses nothing as long as it is pumped before the writer laps it.

    Args:
        path: The ring file.
        rank: What it counts as until its writer says.
        cursors: Those of an earlier collector, by `StoreWriter.cursors`.

    Raises:
        WireError: The file is no sound ring (yet).
    """

    def __init__(self, path: Path, *, rank: int, cursors: dict[str, str]) -> None:
        self.name = path.name
        self._reader = RingReader(path)
        self._builder = StepBuilder(rank=rank, cursor=cursors.get(self.name, ""))
        self.pid = self._reader.identity.pid
        self._cursor = cursors.get(self.name, "")
        self._halt: Optional[Halt] = None  # as seen from outside
        self._stored_sequence = int(cursors.get(self.name + _MESSAGES, "0"))
        self._memory = self._learn()  # the identity stands among the first messages

    @property
    def made_at(self) -> float:
        """When the ring was made, in seconds of the wall clock; its process is older."""
        return self._reader.identity.anchor_wall_ns / 1e9

    @property
    def state(self) -> RankState:
        """What is known of the rank."""
        state, num_lost = self._builder.state, self._reader.num_lost_messages
        return state if state.num_lost_messages == num_lost else replace(state, num_lost_messages=num_lost)

    @property
    def raised(self) -> Optional[tuple[int, str]]:
        """The step and the phase that the newest exception left, where training did not go on behind it."""
        return self._builder.raised

    @property
    def wanted(self) -> int:
        """The number of a report request that waits for its answer; 0: none."""
        return self._reader.wanted or 0

    def answered(self, wanted: int) -> None:
        """Tells the writer that its report is there."""
        self._reader.answer(wanted)

    def halted(self, why: str, at_ns: int) -> None:
        """What was seen of the process from outside.

        Args:
            why: It is "stopped" or "traced" now; empty: it runs.
            at_ns: When it was looked at. A step that is open while its process stands still ends later.
        """
        halt = self._halt
        since_ns = halt.since_ns if halt is not None and halt.why == why else at_ns
        self._halt = Halt(since_ns, at_ns + 1, why) if why else None
        if self._halt is not None:
            self._builder.learn(self._halt)

    def stop(self) -> None:
        """Asks the writer to stop tracing; its training goes on."""
        self._reader.stop()

    def pump(self) -> Iterator[Portion]:
        """Everything published since the last pump, at most 32,768 edges a portion; at least one portion."""
        # The edges first: what a message explains was written behind it, so no edge comes before its message.
        batch = self._reader.read(self._builder.position)
        sequence = self._stored_sequence
        memory = (*self._memory, *self._learn())
        self._memory = ()
        has_news = bool(batch.codes) or self._stored_sequence > sequence
        for piece in _pieces(batch):
            yield self._portion(self._take_in(piece), memory, has_news=has_news)
            memory = ()

    def _take_in(self, piece: EdgeBatch) -> Taken:
        """Feeds a piece; one that the builder cannot make anything of is lost and counted, and ends nothing.

        Without this a stretch of edges that nobody foresaw would end every collector that reads it, and with it the
        run's summary.
        """
        try:
            self._builder.feed(piece)
            taken = self._builder.take()
        except Exception:  # noqa: BLE001  # whatever it is, the rest of the run is worth keeping
            traceback.print_exc()  # into collector.log: it is our mistake
            builder = StepBuilder(rank=self._builder.state.identity.rank, cursor=self._cursor)
            for loader in self._builder.state.loaders:
                builder.learn(loader)
            builder.learn(Watching((), infers=self._builder.infers, clock=self._builder.state.clock))
            builder.state = self._builder.state
            builder.feed(EdgeBatch(piece.end, array("d"), b"", piece.num_lost + len(piece.codes)))
            self._builder = builder
            taken = builder.take()
        self._cursor = taken.cursor
        return taken

    def live(self, now_ns: int, *, alive: bool) -> LiveSlot:
        """What the rank does now."""
        tail = self._reader.read_tail(self._builder.position)
        slot = self._builder.live(tail, now_ns=now_ns, alive=alive)
        return slot if self._halt is None else replace(slot, halted=self._halt.why)

    def finish(self, *, end_ns: int) -> Portion:
        """The writer is gone, or has said goodbye: what it left unfinished becomes the tail."""
        tail = self._reader.read_tail(self._builder.position)
        return self._portion(self._builder.finish(tail, end_ns=end_ns), ())

    def close(self) -> None:
        """Lets the ring go."""
        self._reader.close()

    def _learn(self) -> tuple[MemoryReading, ...]:
        readings = []
        for message in self._reader.messages():
            if not isinstance(message.body, MemoryReading):
                self._builder.learn(message.body)
            elif message.sequence > self._stored_sequence:
                readings.append(message.body)
            self._stored_sequence = max(self._stored_sequence, message.sequence)
        return tuple(readings)

    def _portion(self, taken: Taken, memory: tuple[MemoryReading, ...], *, has_news: bool = False) -> Portion:
        cursors = {self.name: taken.cursor, self.name + _MESSAGES: str(self._stored_sequence)}
        return Portion(taken, memory, cursors, has_news)


def _pieces(batch: EdgeBatch) -> Iterator[EdgeBatch]:
    if not batch.codes:
        yield batch  # lost edges, or nothing: the messages alone can finish something
    for first in range(0, len(batch.codes), PORTION_EDGES):
        last = first + PORTION_EDGES
        lost = batch.num_lost if first == 0 else 0
        yield EdgeBatch(batch.position + first, batch.stamps[first:last], batch.codes[first:last], lost)
