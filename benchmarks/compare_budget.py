"""Measures how often `traceml compare` errs on real runs: identical pairs, and pairs with a known change.

    python compare_budget.py [--only SUITE ...] [--steps N] [--pairs SHARE] [--print]

Where TRACEML_UPSTREAM_PYTHON names an environment with upstream in it, a few pairs of each kind are run under that.
Pairs take turns, each run in a process of its own. What was run is kept under benchmarks/out/compare, and a second
call goes on where the first one ended; `--print` judges what is there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Iterator, Optional

from compared_upstream import find_upstream, verdict_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from traceml.report.compare.comparison import compare
from traceml.report.compare.contract import IMPROVEMENT, REGRESSION, SAME, Comparison
from traceml.report.files import FILE, read_summary

TRAINING = Path(__file__).with_name("compared_training.py")
OUT = Path(__file__).with_name("out") / "compare"
PHASES = ("input", "forward", "backward", "optimizer")
BASE = (8.0, 4.0, 6.0, 2.0)  # of each phase: ms, or units of work; 20 a step
NICE = 5  # of runs that take the CPU
OTHERS_PAIRS = 3  # of upstream, a suite


@dataclass(frozen=True)
class Suite:
    """Pairs of one kind: how many, how much slower the second side is, how many repeats a side."""

    name: str
    kind: str  # sleep | cpu
    num_pairs: int
    change: float = 0.0  # of the whole step, all of it in one phase, the next one in each pair
    repeats: int = 1

    def amounts(self, pair: int, side: int) -> tuple[float, ...]:
        """What each phase of a run of side 0 or 1 is to take."""
        more = self.change * sum(BASE) * side
        return tuple(ms + (more if PHASES[pair % 4] == phase else 0.0) for ms, phase in zip(BASE, PHASES))


SUITES = (
    Suite("sleep, the same", "sleep", 100),
    Suite("sleep, +5 % in one phase", "sleep", 40, 0.05),
    Suite("CPU, the same", "cpu", 30),
    Suite("CPU, +5 % in one phase", "cpu", 30, 0.05),
    Suite("CPU, +10 %, five a side", "cpu", 10, 0.10, 5),
)


class Runner:
    """A process that imported torch once and forks a training for each order."""

    def __init__(self, kind: str) -> None:
        polite = ["nice", "-n", str(NICE)] if kind == "cpu" else []
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TRACEML_")}
        self._process = subprocess.Popen(
            [*polite, sys.executable, str(TRAINING)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environ,
        )

    def train(self, logs: str, name: str, *, kind: str, steps: int, amounts: tuple[float, ...]) -> None:
        """One run.

        Raises:
            RuntimeError: It failed.
        """
        orders, answers = self._ends()
        orders.write(f"{logs} {name} {steps} {kind} {' '.join(map(str, amounts))}\n")
        orders.flush()
        answer = answers.readline().split()
        if answer != [name, "0"]:
            raise RuntimeError(f"the training {name} ended with {answer}")

    def close(self) -> None:
        """Ends the process."""
        self._ends()[0].close()
        self._process.wait()

    def _ends(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def place_of(suite: Suite, pair: int, side: int, repeat: int) -> Path:
    """Where a run's summary is kept."""
    folder = OUT / "".join(ch if ch.isalnum() else "-" for ch in suite.name)
    return folder / f"{pair:03d}-{'ab'[side]}{repeat}.json"


def run_pairs(suite: Suite, *, steps: int, num_pairs: int) -> None:
    """Runs what is missing; whichever side goes first changes from repeat to repeat."""
    OUT.mkdir(parents=True, exist_ok=True)
    runner: Optional[Runner] = None
    for pair in range(num_pairs):
        for repeat in range(suite.repeats):
            for side in (0, 1) if (pair + repeat) % 2 == 0 else (1, 0):
                place = place_of(suite, pair, side, repeat)
                if place.exists():
                    continue
                runner = runner or Runner(suite.kind)
                place.parent.mkdir(exist_ok=True)
                with tempfile.TemporaryDirectory(prefix="traceml-compare-") as logs:
                    name = f"{'ab'[side]}{repeat}"
                    amounts = suite.amounts(pair, side)
                    runner.train(logs, name, kind=suite.kind, steps=steps, amounts=amounts)
                    shutil.copy(Path(logs) / name / FILE, place.with_suffix(".part"))
                    place.with_suffix(".part").rename(place)
    if runner:
        runner.close()


def comparisons(suite: Suite) -> Iterator[tuple[int, Comparison]]:
    """Each pair that is whole, judged."""
    for pair in range(suite.num_pairs):
        sides = [[place_of(suite, pair, side, repeat) for repeat in range(suite.repeats)] for side in (0, 1)]
        if all(path.exists() for side in sides for path in side):
            before, after = ([read_summary(path) for path in side] for side in sides)
            yield pair, compare(before, after)


def row(suite: Suite) -> str:
    """What became of a suite's pairs, on a line."""
    found = list(comparisons(suite))
    verdicts = Counter(one.verdict.diagnosis for _, one in found)
    named = sum(one.verdict.diagnosis == REGRESSION and one.verdict.phase == PHASES[pair % 4] for pair, one in found)
    told = ", ".join(f"{count} {name}" for name, count in verdicts.most_common()) or "not run"
    behind = f"; the phase named in {named} of {verdicts[REGRESSION]}" if suite.change and verdicts[REGRESSION] else ""
    if not suite.change:
        wrong = verdicts[REGRESSION] + verdicts[IMPROVEMENT]
        behind = f"; {wrong} wrong"
    elif verdicts[SAME] + verdicts[IMPROVEMENT]:
        behind += f"; {verdicts[SAME] + verdicts[IMPROVEMENT]} wrong"
    drifts = sorted(one.drift_pct for _, one in found)
    floor = f"; floor {drifts[len(drifts) // 2]:.1f} %" if drifts else ""
    return f"{suite.name:<26}{len(found):>4} pairs: {told}{behind}{floor}"


def upstream_row(traceml: str, suite: Suite, *, steps: int) -> str:
    """What upstream makes of a few pairs of a suite, which are not kept."""
    pairs = [[suite.amounts(pair, side) for side in (0, 1)] for pair in range(OTHERS_PAIRS)]
    verdicts = Counter(verdict_of(traceml, sides, kind=suite.kind, steps=steps) for sides in pairs)
    told = ", ".join(f"{count} {name}" for name, count in verdicts.most_common())
    return f"{'  upstream':<26}{OTHERS_PAIRS:>4} pairs: {told}"


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="suites whose name holds one of these")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pairs", type=float, default=1.0, help="the share of each suite's pairs that is run")
    parser.add_argument("--print", action="store_true", help="judge what is there, run nothing")
    asked = parser.parse_args()
    upstream = find_upstream()
    for suite in SUITES:
        if asked.only and not any(text in suite.name for text in asked.only):
            continue
        if not asked.print:
            run_pairs(suite, steps=asked.steps, num_pairs=max(1, round(suite.num_pairs * asked.pairs)))
        print(row(suite), flush=True)
        if upstream is not None and suite.repeats == 1 and not asked.print:
            print(upstream_row(upstream, suite, steps=asked.steps), flush=True)


if __name__ == "__main__":
    main()
