"""Shows trainings with accelerate bit-identical and recorded right: its wrappers, its loader, its launchers."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Sequence

import pytest

from tests.processes import running

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip(
    "accelerate", reason="accelerate is not installed: pip install accelerate (30 MB with all it needs)"
)
pytestmark = [pytest.mark.process, pytest.mark.torch]
SCRIPT = str(running.SCRIPTS / "accelerated.py")
NUM_BATCHES = 11  # an epoch; there are two
LAUNCH = ("-m", "accelerate.commands.accelerate_cli", "launch", "--cpu", "--num_processes=1", "--num_machines=1")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


@cache
def bare(*words: str) -> tuple[int, list[bytes]]:
    """The exit code and the lines of the same command without us, in any order: ranks print as they come."""
    done = subprocess.run(
        [sys.executable, *words], env=running.environment(), capture_output=True, check=False, timeout=120
    )
    return done.returncode, sorted(done.stdout.splitlines())


def run(cwd: Path, *words: str) -> tuple[running.Result, tuple[int, list[bytes]]]:
    result = running.run(cwd, "--", sys.executable, *words, options=["--mode=summary"])
    return result, (result.code, sorted(result.stdout.splitlines()))


def numbers(result: running.Result) -> Sequence[int]:
    """Steps, micro-batches, optimizer steps, ranks."""
    found = result.summary["run"]
    return [found[name] for name in ("steps", "micro_batches", "optimizer_steps", "world_size")]


@pytest.mark.parametrize(
    ("precision", "every", "num_steps"),
    [("no", 4, 6), pytest.param("no", 1, 22, marks=pytest.mark.long), ("bf16", 1, 22)],
    ids=str,
)
def test_without_a_line_of_code_every_update_is_a_step_and_every_batch_a_micro_batch(
    tmp_path: Path, precision: str, every: int, num_steps: int
) -> None:
    command = (SCRIPT, "", precision, str(every))

    result, ended = run(tmp_path, *command)

    assert ended == bare(*command)
    assert numbers(result) == [num_steps, 2 * NUM_BATCHES, num_steps, 1]
    assert result.summary["run"]["inferred"]
    assert result.summary["coverage"]["faults"] == result.summary["coverage"]["notes"] == []


@pytest.mark.parametrize(
    ("precision", "every", "num_updates"), [("no", 4, 6), pytest.param("bf16", 1, 22, marks=pytest.mark.long)]
)
def test_a_traced_step_is_a_micro_batch_and_waits_for_its_own_fetch(
    tmp_path: Path, precision: str, every: int, num_updates: int
) -> None:
    command = (SCRIPT, "traced", precision, str(every))

    result, ended = run(tmp_path, *command)

    phases = result.summary["step_time"]["phases"]
    assert ended == bare(*command)
    assert numbers(result) == [22, 2 * NUM_BATCHES, num_updates, 1]
    assert phases["input"]["pct"] > 50  # twenty milliseconds of sleep a batch, a model of two small layers
    assert all(phases[name]["count"] > 0 for name in ("input", "forward", "backward", "optimizer"))
    assert result.summary["coverage"]["faults"] == []


def test_accelerate_launch_is_silent_and_what_it_starts_is_the_run(tmp_path: Path) -> None:
    command = (*LAUNCH, SCRIPT, "", "no", "4")

    result, ended = run(tmp_path, *command)

    assert ended == bare(*command)
    assert numbers(result) == [6, 2 * NUM_BATCHES, 6, 1]
    assert len(list((tmp_path / "logs").iterdir())) == 1


@pytest.mark.ranks  # gloo aborts now and then at its end, bare too
@pytest.mark.parametrize("launch", [(*TORCHRUN, SCRIPT, "", "no", "4"), (SCRIPT, "", "no", "4", "notebook")])
def test_two_ranks_are_one_run_whether_torchrun_or_a_notebook_launched_them(
    tmp_path: Path, launch: tuple[str, ...]
) -> None:
    result, ended = run(tmp_path, *launch)

    assert ended == bare(*launch)
    assert numbers(result) == [4, 12, 4, 2]  # of 11 batches each rank trains on 6: 4 + 2 an epoch
    assert [(row["rank"], row["last_step"]) for row in result.summary["coverage"]["ranks"]] == [(0, 4), (1, 4)]
    assert len(list((tmp_path / "logs").iterdir())) == 1
