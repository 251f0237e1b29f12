"""Shows with real processes what a sweep of trials in one process is: a run a trial, or one run without a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import running

pytestmark = [pytest.mark.process, pytest.mark.torch]
SWEEP = str(running.SCRIPTS / "sweep.py")


def runs(cwd: Path) -> dict[str, tuple[Any, ...]]:
    """Of every run, by what stands behind the first one's name: status, steps and failed steps."""
    assert running.nothing_runs(cwd)
    folders = sorted((cwd / "logs").iterdir(), key=lambda path: (len(path.name), path.name))
    found = {}
    for folder in folders:
        run = running.Result(0, b"", "", folder).summary["run"]
        found[folder.name[len(folders[0].name) :]] = (run["status"], run["steps"], run["failed_steps"])
    return found


def bare(cwd: Path) -> bytes:
    command = [sys.executable, SWEEP, "runs"]
    environ = running.environment(TRACEML_DISABLED="1")
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, check=True, timeout=120).stdout


A_RUN_A_TRIAL = {
    "": ("completed", 12, 0),
    "-2": ("completed", 12, 0),
    "-3": ("completed", 8, 1),
    "-4": ("completed", 12, 0),
    "-5": ("completed", 12, 0),
}


def test_a_sweep_under_traceml_run_is_a_run_a_trial(tmp_path: Path) -> None:
    result = running.run(tmp_path, SWEEP, "runs")

    assert runs(tmp_path) == A_RUN_A_TRIAL
    assert (result.code, result.stdout) == (0, bare(tmp_path))


@pytest.mark.long
def test_a_sweep_under_plain_python_is_a_run_a_trial(tmp_path: Path) -> None:
    command = [sys.executable, SWEEP, "runs"]
    done = subprocess.run(
        command, cwd=tmp_path, env=running.environment(), capture_output=True, check=True, timeout=120
    )

    assert runs(tmp_path) == A_RUN_A_TRIAL
    assert done.stdout == bare(tmp_path)
    assert done.stderr.count(b"recording into") == 5


@pytest.mark.parametrize(
    ("how", "steps", "failed"), [("loop", 56, 1), pytest.param("bare", 55, 0, marks=pytest.mark.long)]
)
def test_trials_without_init_and_shutdown_are_one_run_whose_steps_go_on(
    tmp_path: Path, how: str, steps: int, failed: int
) -> None:
    result = running.run(tmp_path, SWEEP, how)

    assert runs(tmp_path) == {"": ("completed", steps, failed)}
    assert result.stdout == bare(tmp_path)
