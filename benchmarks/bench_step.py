"""Measures what a traced step costs the training: CPU of the thread, CPU of the process, the wall's tail."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from contenders import ZERO_CODE, Outcome, rounds
from rows import Figure, compare, figure, publish, quantile, row

NUM_PAIRS = 5
NUM_STEPS = 10_000
BLOCKS = Path(__file__).with_name("blocks.py")
NUM_ROUNDS = 60
NUM_BLOCK_STEPS = 200
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")
BUDGET_US = 10
BUDGET_RANKS_US = 12
SET_ON_US = 140  # the bare step on the machine that the budgets were set on; another one needs more for both
OF_A_STEP = "that, of the bare step"


def _share(budget_us: float) -> float:
    """Percent."""
    return round(100 * budget_us / SET_ON_US, 1)


def between_processes(num_pairs: int, num_steps: int) -> list[str]:
    """A B A B: whole processes in turn, compared round by round."""
    outcomes = rounds(num_pairs, "--steps", str(num_steps), others=[ZERO_CODE])
    return [*_rows(outcomes), *_rows_of_zero_code(outcomes)]


def _rows_of_zero_code(outcomes: dict[str, list[Outcome]]) -> list[str]:
    """The same of the unchanged script: no `trace_step`, no import."""
    ours = {"bare": outcomes["bare"], "ours": outcomes[ZERO_CODE.name]}
    return [line.replace("| ", "| zero code: ", 1) for line in _rows(ours)[:-1]]


def _rows(outcomes: dict[str, list[Outcome]]) -> list[str]:
    def of(key: str, share: float) -> Any:
        return lambda one: quantile(one.found[key], share)

    def tail(one: Outcome) -> float:
        return quantile(one.found["wall_us"], 0.99)

    bares = outcomes["bare"]
    lines = [
        row("training thread's CPU a step, p10", BUDGET_US, "us", compare(outcomes, of("thread_us", 0.1), paired=True)),
        row(
            "training thread's CPU a step, median",
            BUDGET_US,
            "us",
            compare(outcomes, of("thread_us", 0.5), paired=True),
        ),
        row("whole process's CPU a step, median", 25, "us", compare(outcomes, of("process_us", 0.5), paired=True)),
        row("wall of a step, p50", None, "us", compare(outcomes, of("wall_us", 0.5), paired=True)),
        row("wall of a step, p99", None, "us", compare(outcomes, tail, paired=True)),
    ]
    shares = {
        name: figure(
            [100 * (of("thread_us", 0.1)(one) / of("thread_us", 0.1)(base) - 1) for one, base in zip(ones, bares)]
        )
        for name, ones in outcomes.items()
        if name != "bare"
    }
    relative = {
        name: figure([100 * (tail(one) / tail(base) - 1) for one, base in zip(ones, outcomes["bare"])])
        for name, ones in outcomes.items()
        if name != "bare"
    }
    bare = compare(outcomes, of("thread_us", 0.5), paired=False)["bare"]
    lines.insert(1, row(OF_A_STEP, _share(BUDGET_US), "%", shares))
    lines.append(row("wall of a step, p99, against the bare script's", 15, "%", relative))
    lines.append(f"| the bare step, CPU, median | | {bare.text('us', signed=False)} | | |")
    return lines


def within_one_process(num_rounds: int, num_steps: int, num_ranks: int = 1) -> list[str]:
    """Short blocks in turn in a process, or in several ranks' at once: what else the machine does is in all of them."""
    launcher = [] if num_ranks == 1 else [*TORCHRUN, f"--nproc-per-node={num_ranks}"]
    command = [sys.executable, *launcher, str(BLOCKS), "--rounds", str(num_rounds), "--steps", str(num_steps)]
    budget = BUDGET_US if num_ranks == 1 else BUDGET_RANKS_US
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environ)
    found: dict[str, list[dict[str, list[float]]]] = json.loads(done.stdout)

    def all_of(name: str, key: str) -> list[float]:
        return [value for one in found[name] for value in one[key]]

    def p99(name: str) -> float:
        return quantile(all_of(name, "wall_us"), 0.99)

    lines = []
    for name, limit in (("interceptions", None), ("traced", budget), ("zero code", budget)):
        title = "hooks that do nothing: " if limit is None else f"{name}: "
        pairs = list(zip(found["bare"], found[name]))
        extra = [quantile(b["thread_us"], 0.25) - quantile(a["thread_us"], 0.25) for a, b in pairs]
        p10 = quantile(all_of(name, "thread_us"), 0.1) - quantile(all_of("bare", "thread_us"), 0.1)
        lines.append(row(f"{title}training thread's CPU a step, p10 of all", limit, "us", {"ours": figure([p10])}))
        middle = {"ours": Figure(quantile(extra, 0.5), quantile(extra, 0.25), quantile(extra, 0.75))}
        share = {"ours": figure([100 * p10 / quantile(all_of("bare", "thread_us"), 0.1)])}
        lines.append(row(f"{title}{OF_A_STEP}", limit and _share(budget), "%", share))
        lines.append(row(f"{title}the same, median of the rounds and their quartiles", limit, "us", middle))
        p50 = quantile(all_of(name, "wall_us"), 0.5) - quantile(all_of("bare", "wall_us"), 0.5)
        lines.append(row(f"{title}wall of a step, p50", None, "us", {"ours": figure([p50])}))
        tail = 100 * (p99(name) / p99("bare") - 1)
        lines.append(row(f"{title}wall of a step, p99", limit and 15, "%", {"ours": figure([tail])}))
    bare = figure([quantile(all_of("bare", "thread_us"), 0.1)])
    lines.append(f"| the bare step, CPU, p10 | | {bare.text('us', signed=False)} | | |")
    return lines


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=NUM_PAIRS)
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--ranks", type=int, default=2, help="0: not with several ranks")
    args = parser.parse_args()
    if args.pairs:
        publish(
            "step",
            f"A traced step, more than the bare one ({args.pairs} pairs of processes, {args.steps:,} steps each)",
            between_processes(args.pairs, args.steps),
        )
    publish(
        "step_blocks",
        f"The same in one process ({args.rounds} rounds of blocks of {NUM_BLOCK_STEPS:,} steps)",
        within_one_process(args.rounds, NUM_BLOCK_STEPS),
    )
    if args.ranks:
        publish(
            "step_ranks",
            f"The same in each of {args.ranks} ranks, DDP over gloo ({args.rounds} rounds of {NUM_BLOCK_STEPS} steps)",
            within_one_process(args.rounds, NUM_BLOCK_STEPS, args.ranks),
        )


if __name__ == "__main__":
    main()
