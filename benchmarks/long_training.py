"""Trains the smallest network there is for a very long time, and prints what the process holds on the way."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import traceml
from traceml import part
from traceml.wire.ring import PUBLISHED


def rss_mb() -> float:
    """The process's resident memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Prints a line of JSON: memory and allocated blocks after each tenth, and the ring's laps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    traceml.init()
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.ones(1, 1)
    sizes: list[float] = []
    blocks: list[int] = []
    for step in range(1, args.steps + 1):
        with traceml.trace_step(model):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        if step % (args.steps // 10) == 0:
            sizes.append(rss_mb())
            blocks.append(sys.getallocatedblocks())
    assert part.current is not None
    ring = part.current.session.pen.ring
    num_laps = ring.header[PUBLISHED] / ring.num_edges
    print(json.dumps({"rss_mb": sizes, "num_blocks": blocks, "num_laps": num_laps}))


if __name__ == "__main__":
    main()
