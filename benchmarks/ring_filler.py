"""Writes steps of ten edges into a run's ring at a steady pace, as a training process would: no torch, no hooks."""

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

STEP = (
    edges.INPUT,
    edges.INPUT + edges.CLOSE,
    edges.STEP_BEGIN,
    edges.FORWARD,
    edges.FORWARD + edges.CLOSE,
    edges.BACKWARD,
    edges.BACKWARD + edges.CLOSE,
    edges.OPTIMIZER,
    edges.OPTIMIZER + edges.CLOSE,
    edges.STEP_END,
)
PAUSE_S = 0.001


def fill(ring: RingWriter, *, steps_per_s: float, num_steps: int) -> float:
    """Stores and publishes the steps, behind time never faster than it can; gives the seconds it took."""
    stamps: Any = ring.stamps  # a view of doubles, which memoryview's types do not know
    codes, header, mask = ring.codes, ring.header, ring.num_edges - 1
    begin, at, sealed = time.perf_counter(), 0, 0
    for step in range(num_steps):
        while steps_per_s and time.perf_counter() < begin + step / steps_per_s:
            time.sleep(PAUSE_S)
        for code in STEP:
            codes[at & mask] = code
            stamps[at & mask] = time.perf_counter()
            at += 1
        if at - sealed >= SEAL_EDGES:
            codes[at & mask] = edges.STEP_NUMBER
            stamps[at & mask] = step + 1
            at += 1
            ring.seal(at)
            sealed = at
        header[PUBLISHED] = at
    return time.perf_counter() - begin


def main() -> None:
    """Fills the ring of the run in `--run` and prints the seconds it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--rate", type=float, required=True, help="steps a second; 0: as fast as it can")
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    now = time.perf_counter_ns()
    ring = RingWriter(
        Path(read_manifest(args.run).ring_dir) / f"{os.getpid()}-0.ring",
        process_start_ns=now,
        anchor_ns=now,
        anchor_wall_ns=time.time_ns(),
    )
    ring.send(RankIdentity(0, 0, 1, os.getpid(), now, socket.gethostname(), "", sys.version.split()[0]))
    ring.send(Watching(("input", "forward", "backward", "optimizer")))
    print(fill(ring, steps_per_s=args.rate, num_steps=args.steps))
    ring.send(RankEnd(0, "end", at_ns=time.perf_counter_ns()))
    ring.close()


if __name__ == "__main__":
    main()
