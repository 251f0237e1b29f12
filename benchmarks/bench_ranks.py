"""Measures what the collector costs beside several ranks: CPU of a core and memory, start and summary left out."""

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
from rows import as_installed, figure, publish, row

from traceml.launch import collector, place
from traceml.settings import resolve

FILLER = Path(__file__).with_name("ranks_filler.py")
CASES = ((8, 20.0, 1.0, 60.0), (64, 10.0, 5.0, None))  # ranks, steps a second, % of a core, MB
SETTLED_S = 5.0
TIMEOUT_S = 120


@dataclass(frozen=True)
class Beside:
    """A collector beside its ranks."""

    cpu_percent: float
    rss_mb: float
    num_steps: int
    diagnosis: str


def beside(*, num_ranks: int, steps_per_s: float, seconds: float) -> Beside:
    """Lets a real collector read the rings of so many ranks, and samples it from the fifth second to the last one."""
    with tempfile.TemporaryDirectory(prefix="traceml-bench-") as logs:
        run = place.prepare_run(
            resolve(command_line={"logs_dir": logs}), script="fill.py", arguments=(), started_by="init"
        )
        process = collector.start_collector(run.folder, pipe=False)
        watched = psutil.Process(process.pid)
        options = {
            "--run": run.folder,
            "--ranks": num_ranks,
            "--rate": steps_per_s,
            "--steps": round(seconds * steps_per_s),
        }
        filler = subprocess.Popen(
            [sys.executable, str(FILLER), *(str(part) for pair in options.items() for part in pair)]
        )
        time.sleep(SETTLED_S)
        begin_s, first = time.monotonic(), _cpu_s(watched)
        time.sleep(seconds - SETTLED_S - 1)
        spent_s, rss_mb = _cpu_s(watched) - first, watched.memory_info().rss / 1e6
        wall_s = time.monotonic() - begin_s
        filler.wait(TIMEOUT_S)
        process.wait(TIMEOUT_S)
        summary = json.loads((run.folder / "final_summary.json").read_text(encoding="utf-8"))
        return Beside(100 * spent_s / wall_s, rss_mb, summary["run"]["steps"], str(summary["step_time"]["diagnosis"]))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    as_installed()
    lines = []
    for num_ranks, rate, cpu_budget, rss_budget in CASES:
        found = beside(num_ranks=num_ranks, steps_per_s=rate, seconds=args.seconds)
        name = f"{num_ranks} ranks x {rate:.0f} steps/s"
        lines += [
            row(
                f"{name}: collector's CPU",
                cpu_budget,
                "% of a core",
                {"ours": figure([found.cpu_percent])},
                signed=False,
            ),
            row(f"{name}: collector's memory", rss_budget, "MB", {"ours": figure([found.rss_mb])}, signed=False),
        ]
        print(f"{name}: {found.num_steps} steps, {found.diagnosis}", file=sys.stderr)
    publish("ranks", "The collector beside several ranks", lines)


if __name__ == "__main__":
    main()
