"""Shows real trainings from the loop to the summary, under `traceml run` and under plain python."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch]
TRAINING = str(running.SCRIPTS / "training.py")


def plain_python(tmp_path: Path, how: str) -> running.Result:
    command = [sys.executable, TRAINING, how]
    done = subprocess.run(
        command, cwd=tmp_path, env=running.environment(), capture_output=True, check=False, timeout=120
    )
    (folder,) = (tmp_path / "logs").iterdir()
    assert running.until((folder / "final_summary.json").exists)
    assert running.until(lambda: not running.collectors_of(tmp_path))
    return running.Result(done.returncode, done.stdout, done.stderr.decode(), folder)


@pytest.mark.parametrize(
    ("how", "code", "status", "ended_by"),
    [
        ("end", 0, "completed", "end"),
        ("exception", 1, "failed", "exception"),
        ("exit7", 7, "failed", "exit"),
        ("_exit3", 3, "failed", "exit"),
        ("sigkill", 137, "killed", "signal SIGKILL"),
    ],
)
def test_a_training_under_traceml_run_ends_as_it_would_alone(
    tmp_path: Path, how: str, code: int, status: str, ended_by: str
) -> None:
    result = running.run(tmp_path, TRAINING, how)

    assert (result.code, result.stdout) == (code, b"summary of 40 steps\n")
    assert result.end == (status, ended_by, code, 40)
    assert running.nothing_runs(tmp_path)


@pytest.mark.parametrize(
    ("how", "code", "status", "ended_by"),
    [
        ("end", 0, "completed", "end"),
        ("exception", 1, "failed", "exception"),
        ("sigkill", -9, "unknown", "unknown"),  # nobody was there to see the signal
    ],
)
def test_a_training_under_plain_python_is_summarized_after_its_end(
    tmp_path: Path, how: str, code: int, status: str, ended_by: str
) -> None:
    result = plain_python(tmp_path, how)

    assert (result.code, result.stdout) == (code, b"summary of 40 steps\n")
    assert result.end == (status, ended_by, None, 40)
    assert not running.ring_dir(result.folder).exists()


def test_training_goes_on_after_a_shutdown_and_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    result = plain_python(tmp_path, "shutdown")

    assert result.stdout == b"summary of 40 steps\ntraining goes on\n"
    assert result.end == ("completed", "end", None, 40)
    assert not running.ring_dir(result.folder).exists()
