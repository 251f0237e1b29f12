"""Measures what a run costs around its steps: start, end, and the processes beside the training."""

from __future__ import annotations

import argparse

from contenders import Outcome, rounds
from rows import as_installed, compare, publish, row

NUM_PAIRS = 5
NUM_STEPS = 20_000


def start_and_end(num_pairs: int) -> list[str]:
    """A run of a single step: nothing but start and end."""
    outcomes = rounds(num_pairs, "--steps", "1")
    return [
        row("start to the first step", 0.2, "s", compare(outcomes, lambda one: one.first_step_s, paired=True)),
        row("a whole 1-step run", 0.5, "s", compare(outcomes, lambda one: one.total_s, paired=True)),
        row(
            "training's end to the prompt", 1, "s", compare(outcomes, lambda one: one.end_s, paired=False), signed=False
        ),
        row("of that, more than the bare script", None, "s", compare(outcomes, lambda one: one.end_s, paired=True)),
    ]


def beside(num_pairs: int, num_steps: int) -> list[str]:
    """A run of several seconds, its processes watched from outside; the samples are 20 ms apart."""
    outcomes = rounds(num_pairs, "--steps", str(num_steps), watch=True)

    def launcher(one: Outcome) -> float | None:
        return one.rss_mb_of("traceml run") or one.rss_mb_of("traceml") if one.neighbours else None

    def rest(one: Outcome) -> float:
        return sum(neighbour.rss_bytes for neighbour in one.neighbours.values()) / 1e6

    trainer = compare(outcomes, lambda one: one.trainer_rss_bytes / 1e6, paired=True)
    return [
        row(
            "CPU of everything beside the training",
            1,
            "s",
            compare(outcomes, lambda one: one.beside_cpu_s, paired=False),
            signed=False,
        ),
        row("memory of the trainer", 10, "MB", trainer),
        row("memory of the launcher", 20, "MB", compare(outcomes, launcher, paired=False), signed=False),
        row(
            "memory of the collector",
            40,
            "MB",
            compare(outcomes, lambda one: one.rss_mb_of("traceml.cli.node"), paired=False),
            signed=False,
        ),
        row(
            "memory of everything beside the training", None, "MB", compare(outcomes, rest, paired=False), signed=False
        ),
    ]


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=NUM_PAIRS)
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    args = parser.parse_args()
    as_installed()
    publish("run", f"A run of one step ({args.pairs} pairs of processes)", start_and_end(args.pairs))
    title = f"Beside the training ({args.pairs} runs of {args.steps:,} steps, `--mode=summary`)"
    publish("beside", title, beside(args.pairs, args.steps))


if __name__ == "__main__":
    main()
