"""Measures what grows with a run's length and must not: the trainer's memory, the database. Slow: some minutes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

from rows import figure, publish, row

from traceml.schema.distribution import Distribution
from traceml.schema.phases import FORWARD, PHASE_INDEX, PHASES
from traceml.schema.records import Block, StepRecord
from traceml.store.reader import StoreReader
from traceml.store.writer import StoreWriter

if TYPE_CHECKING:
    from typing import Sequence

LONG_TRAINING = Path(__file__).with_name("long_training.py")
NUM_STEPS = 1_000_000
NUM_STORED = 10_000_000
PORTION = 4_000
NUM_SHAPES = 4_096
STEP_NS = 40_000_000
SHARES = (0.5, 0.9, 0.99)


def memory(num_steps: int) -> list[str]:
    """A real training of very small steps under a real collector; what it holds after a tenth of it and at the end."""
    with tempfile.TemporaryDirectory(prefix="traceml-bench-") as folder:
        command = [sys.executable, str(LONG_TRAINING), "--steps", str(num_steps)]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    growth = {name: {"ours": figure([found[name][-1] - found[name][0]])} for name in ("rss_mb", "num_blocks")}
    between = f"between step {num_steps // 10:,} and {num_steps:,}"
    return [
        row(f"the trainer's memory grows {between}", 1, "MB", growth["rss_mb"]),
        row(f"Python's allocated blocks grow {between}", 1_000, "blocks", growth["num_blocks"]),
        row("laps of the ring meanwhile", None, "laps", {"ours": figure([found["num_laps"]])}, signed=False),
    ]


def database(num_steps: int) -> list[str]:
    """Synthetic steps straight into the store, as fast as it takes them."""
    with tempfile.TemporaryDirectory(prefix="traceml-bench-") as folder:
        path = Path(folder) / "run.db"
        periods, most, begin = _periods(), 0, time.monotonic()
        writer = StoreWriter(path)
        for portion in _portions(num_steps, periods):
            writer.append(steps=portion)
            most = max(most, sum(file.stat().st_size for file in Path(folder).iterdir()))
        writer.close()
        wrote_s = time.monotonic() - begin
        reader = StoreReader(path)
        whole = _whole(reader.window(0).pieces)
        reader.close()
    exact = sorted(periods[step % NUM_SHAPES] for step in range(1, num_steps + 1))
    errors = [abs(100 * (whole.quantile(share) / _exact(exact, share) - 1)) for share in SHARES]
    off = abs(whole.maximum - exact[-1]) + abs(whole.minimum - exact[0]) + abs(whole.total - sum(exact))
    return [
        row("database and log, most", 64, "MB", {"ours": figure([most / 1e6])}, signed=False),
        row("steps that it no longer knows of", 0, "steps", {"ours": figure([num_steps - whole.count])}, signed=False),
        row(
            "p50, p90 and p99 of the period are off by, at most", 1, "%", {"ours": figure([max(errors)])}, signed=False
        ),
        row("least, greatest and sum are off by", 0, "ns", {"ours": figure([off])}, signed=False),
        row("the store's time", None, "s", {"ours": figure([wrote_s])}, signed=False),
    ]


def _periods() -> list[int]:
    """Periods of 20 to 120 ms, one of them of an hour: a step is one of these in turn."""
    found = [20_000_000 + (number * 7919 % NUM_SHAPES) * 24_414 for number in range(NUM_SHAPES)]
    found[17] = 3_600_000_000_000
    return found


def _portions(num_steps: int, periods: Sequence[int]) -> Iterator[list[StepRecord]]:
    nothing = [None] * len(PHASES)
    shapes = []
    for period_ns in periods:
        phase_ns: list[int | None] = list(nothing)
        phase_ns[PHASE_INDEX[FORWARD]] = period_ns
        shapes.append(tuple(phase_ns))
    for first in range(1, num_steps + 1, PORTION):
        yield [
            StepRecord(
                rank=0,
                step=step,
                end_ns=10**14 + step * STEP_NS,
                period_ns=periods[step % NUM_SHAPES],
                phase_ns=shapes[step % NUM_SHAPES],
                num_micro_batches=1,
                num_optimizer_steps=1,
            )
            for step in range(first, min(first + PORTION, num_steps + 1))
        ]


def _whole(pieces: Sequence[Block | StepRecord]) -> Distribution:
    whole = Distribution()
    for piece in pieces:
        if isinstance(piece, Block):
            whole.merge(piece.period)
        else:
            whole.add(piece.period_ns)
    return whole


def _exact(ordered: Sequence[int], share: float) -> int:
    return ordered[int(share * (len(ordered) - 1))]


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="of the training")
    parser.add_argument("--stored", type=int, default=NUM_STORED, help="given to the store")
    args = parser.parse_args()
    if args.stored:
        publish("long_store", f"{args.stored:,} steps in the database", database(args.stored))
    if args.steps:
        publish("long_memory", f"A training of {args.steps:,} steps", memory(args.steps))


if __name__ == "__main__":
    main()
