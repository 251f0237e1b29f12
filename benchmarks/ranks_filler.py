"""Writes the rings of several ranks at a steady pace, as their trainings would under DDP: no torch, no hooks."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from traceml.schema.records import RankEnd, RankIdentity, Watching
from traceml.wire import edges
from traceml.wire.manifest import read_manifest
from traceml.wire.ring import PUBLISHED, SEAL_EDGES, RingWriter

OWN = (  # code, share of the period that has passed by then
    (edges.INPUT, 0.01),
    (edges.INPUT + edges.CLOSE, 0.05),
    (edges.STEP_BEGIN, 0.06),
    (edges.FORWARD, 0.07),
    (edges.FORWARD + edges.CLOSE, 0.3),
    (edges.BACKWARD, 0.31),
    (edges.SYNC, 0.7),
    (edges.SYNC + edges.CLOSE, 0.8),
    (edges.BACKWARD + edges.CLOSE, 0.81),
    (edges.OPTIMIZER, 0.82),
    (edges.OPTIMIZER + edges.CLOSE, 0.95),
    (edges.STEP_END, 0.99),
)
NUM_EDGES = 1 << 14


class Rank:
    """One ring; its steps have the stamps that the pace demands, and rank 1 is late in forward."""

    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        now = time.perf_counter_ns()
        self.rank, self._at, self._sealed = rank, 0, 0
        self.ring = RingWriter(
            folder / f"{os.getpid()}-{rank}.ring",
            process_start_ns=now,
            anchor_ns=now,
            anchor_wall_ns=time.time_ns(),
            num_edges=NUM_EDGES,
        )
        self.ring.send(
            RankIdentity(rank, rank, world_size, os.getpid(), now, socket.gethostname(), "", sys.version[:6])
        )
        self.ring.send(Watching(("input", "forward", "backward", "sync", "optimizer")))
        self._put(edges.SERIAL, 1 << edges.SERIAL_BITS | 1)

    def step(self, number: int, begin_s: float, period_s: float) -> None:
        """The edges of a step that is over."""
        late = 0.1 if self.rank == 1 else 0.0
        for code, share in OWN:
            waits = edges.FORWARD + edges.CLOSE <= code <= edges.SYNC
            self._put(code, begin_s + period_s * (share + (late if waits else 0.0)))
        if self._at - self._sealed >= SEAL_EDGES:
            self._put(edges.STEP_NUMBER, number)
            self.ring.seal(self._at)
            self._sealed = self._at
        self.ring.header[PUBLISHED] = self._at

    def goodbye(self) -> None:
        """Ends it."""
        self.ring.send(RankEnd(self.rank, "end", at_ns=time.perf_counter_ns()))
        self.ring.close()

    def _put(self, code: int, value: float) -> None:
        stamps: Any = self.ring.stamps  # a view of doubles, which memoryview's types do not know
        self.ring.codes[self._at & (NUM_EDGES - 1)] = code
        stamps[self._at & (NUM_EDGES - 1)] = value
        self._at += 1


def main() -> None:
    """Fills the rings of the run in `--run`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="steps a second")
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    ranks = [Rank(Path(read_manifest(args.run).ring_dir), rank, args.ranks) for rank in range(args.ranks)]
    begin, period_s = time.perf_counter(), 1 / args.rate
    for number in range(1, args.steps + 1):
        time.sleep(max(0.0, begin + number * period_s - time.perf_counter()))
        for rank in ranks:
            rank.step(number, begin + (number - 1) * period_s, period_s)
    for rank in ranks:
        rank.goodbye()


if __name__ == "__main__":
    main()
