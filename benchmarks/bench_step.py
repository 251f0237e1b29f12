"""Measures what a traced step costs the training: CPU of the thread, CPU of the process, the wall's tail."""

from __future__ import annotations

import argparse
from typing import Any

from contenders import OURS, ZERO_CODE, Outcome, rounds, run
from rows import compare, figure, publish, quantile, row

NUM_PAIRS = 5
NUM_STEPS = 10_000
NUM_BLOCK_STEPS = 2_000


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

    lines = [
        row("training thread's CPU a step, p10", 10, "us", compare(outcomes, of("thread_us", 0.1), paired=True)),
        row("training thread's CPU a step, median", 10, "us", compare(outcomes, of("thread_us", 0.5), paired=True)),
        row("whole process's CPU a step, median", 25, "us", compare(outcomes, of("process_us", 0.5), paired=True)),
        row("wall of a step, p50", None, "us", compare(outcomes, of("wall_us", 0.5), paired=True)),
        row("wall of a step, p99", None, "us", compare(outcomes, tail, paired=True)),
    ]
    relative = {
        name: figure([100 * (tail(one) / tail(base) - 1) for one, base in zip(ones, outcomes["bare"])])
        for name, ones in outcomes.items()
        if name != "bare"
    }
    bare = compare(outcomes, of("thread_us", 0.5), paired=False)["bare"]
    lines.append(row("wall of a step, p99, against the bare script's", 15, "%", relative))
    lines.append(f"| the bare step, CPU, median | | {bare.text('us', signed=False)} | | |")
    return lines


def within_one_process(num_pairs: int, num_steps: int) -> list[str]:
    """Bare and traced blocks in turn in one process: init() before a traced block, shutdown() behind it."""
    pairs = run(OURS, "--blocks", str(num_pairs), "--steps", str(num_steps)).found["pairs"]
    lines = []
    for share, name in ((0.1, "p10"), (0.5, "median")):
        extra = [quantile(b["thread_us"], share) - quantile(a["thread_us"], share) for a, b in pairs]
        lines.append(row(f"training thread's CPU a step, {name}", 10, "us", {"ours": figure(extra)}))
    return lines


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=NUM_PAIRS)
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    args = parser.parse_args()
    publish(
        "step",
        f"A traced step, more than the bare one ({args.pairs} pairs of processes, {args.steps:,} steps each)",
        between_processes(args.pairs, args.steps),
    )
    publish(
        "step_blocks",
        f"The same in one process ({args.pairs} pairs of blocks of {NUM_BLOCK_STEPS:,} steps)",
        within_one_process(args.pairs, NUM_BLOCK_STEPS),
    )


if __name__ == "__main__":
    main()
