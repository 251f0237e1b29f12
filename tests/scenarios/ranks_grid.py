"""Runs four ranks with a known cause many times over, and prints how often it was named: the confusion matrix.

    python -m tests.scenarios.ranks_grid [--out FILE] [--only PLACE] [--traceml PATH]

Goes on where an earlier call stopped: each run is a line in FILE. About 165 runs of 12 s; not a part of any test.
Where TRACEML_UPSTREAM_PYTHON names an environment with upstream in it, the first seeds run under that, too.
Held: at 20 ms and above rank and phase are right in every run, at 5 ms in nine of ten; in runs without a culprit nobody
is named. 2 ms is printed only. With `--only` one place is run, and nothing is held.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from tests.scenarios.check import SCRIPTS, find_traceml, run_scenario
from tests.scenarios.upstream import find_upstream, run_upstream

NUM_RANKS = 4
PLACES = {
    "input": "input",
    "gap": "in_step",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "between": "between_steps",
}
ROTATING = ("rotating-forward", "rotating-backward")
SEEDS = {2: 3, 5: 10, 20: 3, 60: 3}
UNIFORM = {"none": 18, "all-input": 6, "comm": 6}
OUT = Path(__file__).resolve().parents[2] / "benchmarks" / "out" / "ranks-grid.jsonl"
AT_5_MS = 0.9
OTHER = ".upstream"  # behind the file's name: upstream's runs
OTHERS_SEEDS = 1


class Cell(NamedTuple):
    """One run: where a rank is late, by how much, and which seed of it."""

    place: str
    ms: int
    seed: int

    @property
    def rank(self) -> int:
        """Who is late moves with the seed."""
        return (self.seed + 1) % NUM_RANKS

    @property
    def call(self) -> str:
        """The scenario, as a command line."""
        return f"ranks.py --where {self.place} --ms {self.ms} --rank {self.rank} --steps {50 if self.ms == 60 else 80}"

    @property
    def wanted(self) -> str:
        """What is to be said."""
        if self.place in PLACES:
            return f"rank {self.rank} {PLACES[self.place]}"
        return "in turn" if self.place in (*ROTATING, "lengths") else "nobody"


def cells() -> Iterator[Cell]:
    """All of them, the seeds last: an early stop has a few of each."""
    for seed in range(max(*SEEDS.values(), *UNIFORM.values())):
        for ms, num_seeds in SEEDS.items():
            places = [*PLACES, *(ROTATING if ms > min(SEEDS) and seed < min(SEEDS.values()) else ())]
            yield from (Cell(place, ms, seed) for place in places if seed < num_seeds)
        yield from (Cell(place, 20, seed) for place, num_seeds in UNIFORM.items() if seed < num_seeds)
        if seed < min(SEEDS.values()):
            yield Cell("lengths", 20, seed)


def said(summary: Dict[str, Any]) -> str:
    """Who is named: `rank 2 input`, `in turn`, `nobody`."""
    for finding in summary["step_time"]["findings"]:
        if finding["diagnosis"] == "STRAGGLER":
            return f"rank {finding['ranks'][0]} {finding['phases'][0]}"
        if finding["diagnosis"] == "ROTATING_STRAGGLER":
            return "in turn"
    return "nobody"


def run_cell(traceml: str, cell: Cell) -> str:
    """What a run of this cell says, or why there is none."""
    with tempfile.TemporaryDirectory() as logs:
        try:
            summary = run_scenario(traceml, SCRIPTS, cell.call, logs, want={"ranks": NUM_RANKS})
        except (subprocess.TimeoutExpired, ValueError) as error:
            return type(error).__name__
    return summary if isinstance(summary, str) else said(summary)


def run_other(traceml: str, cell: Cell) -> str:
    """What upstream says of a run of this cell."""
    try:
        return run_upstream(traceml, SCRIPTS, cell.call, ranks=NUM_RANKS)
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        return type(error).__name__


def read(path: Path) -> Dict[Cell, str]:
    """The runs of earlier calls."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return {Cell(one["place"], one["ms"], one["seed"]): one["said"] for one in found}


def matrix(found: Dict[Cell, str], others: Dict[Cell, str]) -> List[str]:
    """A row a place, a column a delay: how often it was right; upstream behind it; and what we said instead."""
    beside = f"   upstream{'':<1}" + "".join(f"{f'{ms} ms':>7}" for ms in SEEDS) if others else ""
    rows = [f"{'':20}" + "".join(f"{f'{ms} ms':>9}" for ms in SEEDS) + beside]
    for place in (*PLACES, *ROTATING, "lengths", *UNIFORM):
        row = f"{place:20}{_columns(found, place, width=9)}"
        rows.append(f"{row}{'':12}{_columns(others, place, width=7)}".rstrip() if others else row)
    wrong = [(cell, text) for cell, text in sorted(found.items()) if text != cell.wanted]
    return [
        *rows,
        *(f"  {cell.place} {cell.ms} ms seed {cell.seed}: {text}, not {cell.wanted}" for cell, text in wrong),
    ]


def _columns(found: Dict[Cell, str], place: str, *, width: int) -> str:
    scores = [score(found, place, ms) for ms in SEEDS]
    return "".join(f"{f'{right}/{runs}' if runs else '':>{width}}" for right, runs in scores)


def score(found: Dict[Cell, str], place: str, ms: int) -> Tuple[int, int]:
    """Right ones, and all."""
    runs = [text == cell.wanted for cell, text in found.items() if (cell.place, cell.ms) == (place, ms)]
    return sum(runs), len(runs)


def broken(found: Dict[Cell, str]) -> List[str]:
    """What was promised and is not so."""
    limits = {5: AT_5_MS, 20: 1.0, 60: 1.0}
    return [
        f"{place} at {ms} ms: {right} of {runs}"
        for place in (*PLACES, *ROTATING, "lengths", *UNIFORM)
        for ms, least in limits.items()
        for right, runs in [score(found, place, ms)]
        if runs and right < least * runs
    ]


def complete(path: Path, wanted: List[Cell], run: Callable[[Cell], str]) -> Dict[Cell, str]:
    """All runs of these cells; those that are not in the file are made now, and kept there."""
    found = read(path)
    for cell in wanted:
        if cell in found:
            continue
        found[cell] = text = run(cell)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**cell._asdict(), "said": text}) + "\n")
        print(f"{'right' if text == cell.wanted else 'WRONG'}  {cell.call}: {text}", flush=True)
    return found


def main(argv: Optional[List[str]] = None) -> int:
    """Runs what is missing, prints the matrix, and says whether it holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", help="one place")
    parser.add_argument("--traceml", default=find_traceml())
    args = parser.parse_args(argv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    wanted = [cell for cell in cells() if not args.only or cell.place == args.only]
    found = complete(args.out, wanted, lambda cell: run_cell(args.traceml, cell))
    upstream, beside = find_upstream(), args.out.with_name(args.out.name + OTHER)
    if upstream is not None:
        firsts = [cell for cell in wanted if cell.seed < OTHERS_SEEDS and cell.ms > min(SEEDS)]
        complete(beside, firsts, lambda cell: run_other(upstream, cell))
    print("\n".join(matrix(found, read(beside))))
    faults = [] if args.only else broken(found)
    print("\n".join(faults) or "holds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
