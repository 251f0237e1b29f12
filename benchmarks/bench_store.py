"""Measures the way of a step from the ring to the disk: how many a second without loss, and how many bytes each."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from rows import Figure, as_installed, figure, publish, row

from traceml.launch import collector, place
from traceml.settings import resolve

FILLER = Path(__file__).with_name("ring_filler.py")
RATE = 20_000
SECONDS = 10
RAW_STEPS = 20_000
TIMEOUT_S = 120


@dataclass(frozen=True)
class Passage:
    """What became of the steps of one run."""

    num_written: int
    num_read: int
    wrote_s: float
    finish_s: float  # from the writer's end to the summary
    database_bytes: int
    collector_cpu_s: float

    @property
    def bytes_a_step(self) -> float:
        """The database's size by the steps written."""
        return self.database_bytes / self.num_written


def passage(*, steps_per_s: float, num_steps: int) -> Passage:
    """Sends the steps through a real ring and a real collector into a real database."""
    with tempfile.TemporaryDirectory(prefix="traceml-bench-") as logs:
        run = place.prepare_run(
            resolve(command_line={"logs_dir": logs}), script="fill.py", arguments=(), started_by="init"
        )
        process = collector.start_collector(run.folder, pipe=False)
        watched = psutil.Process(process.pid)
        command = [
            sys.executable,
            str(FILLER),
            "--run",
            str(run.folder),
            "--rate",
            str(steps_per_s),
            "--steps",
            str(num_steps),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
        end, cpu_s, finish_s = time.monotonic(), 0.0, 0.0
        while process.poll() is None and time.monotonic() < end + TIMEOUT_S:
            if not finish_s and (run.folder / "final_summary.json").exists():
                finish_s = time.monotonic() - end
            try:
                times = watched.cpu_times()
                cpu_s = max(cpu_s, times.user + times.system)
            except psutil.Error:
                break
            time.sleep(0.01)
        process.wait(TIMEOUT_S)
        summary = json.loads((run.folder / "final_summary.json").read_text(encoding="utf-8"))
        return Passage(
            num_written=num_steps,
            num_read=summary["run"]["steps"],
            wrote_s=float(done.stdout),
            finish_s=finish_s,
            database_bytes=sum(path.stat().st_size for path in run.folder.rglob("*.db")),
            collector_cpu_s=cpu_s,
        )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=RATE, help="steps a second")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    args = parser.parse_args()
    as_installed()
    num_steps = int(args.rate * args.seconds)
    paced = passage(steps_per_s=args.rate, num_steps=num_steps)
    small = passage(steps_per_s=args.rate / 10, num_steps=RAW_STEPS)
    fast = passage(steps_per_s=0, num_steps=num_steps)

    def one(value: float) -> dict[str, Figure]:
        return {"ours": figure([value])}

    lost = paced.num_written - paced.num_read
    written_per_s, missing = fast.num_written / fast.wrote_s, fast.num_written - fast.num_read
    lines = [
        row(f"steps lost at {args.rate:,} steps a second, of {num_steps:,}", 0, "steps", one(lost), signed=False),
        row("the writer's pace, really", None, "steps/s", one(paced.num_written / paced.wrote_s), signed=False),
        row(f"disk, {RAW_STEPS:,} steps", 150, "B a step", one(small.bytes_a_step), signed=False),
        row(f"disk, {num_steps:,} steps", 150, "B a step", one(paced.bytes_a_step), signed=False),
        row("the database, cap", 64, "MB", one(paced.database_bytes / 1e6), signed=False),
        row("collector's CPU a step", None, "us", one(1e6 * paced.collector_cpu_s / num_steps), signed=False),
        row("last step to the summary", 1, "s", one(paced.finish_s), signed=False),
        row(f"steps lost at {written_per_s:,.0f} steps a second, unpaced", None, "steps", one(missing), signed=False),
    ]
    publish("store", "From the ring to the disk", lines)


if __name__ == "__main__":
    main()
