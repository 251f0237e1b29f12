"""Shows real trainings from the loop to the summary, under `traceml run` and under plain python."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes import running
from traceml.collect.life import kernel_keeps_exit_status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch]
KERNEL_TELLS = kernel_keeps_exit_status()
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
    ("how", "code", "told", "untold"),
    [
        ("end", 0, ("completed", "end", 0, 40), ("completed", "end", None, 40)),
        pytest.param(
            "exception", 1, ("failed", "exception", 1, 40), ("failed", "exception", None, 40), marks=pytest.mark.long
        ),
        pytest.param("exit7", 7, ("failed", "exit", 7, 40), ("completed", "end", None, 40), marks=pytest.mark.long),
        ("sigkill", -9, ("killed", "signal SIGKILL", 137, 40), ("unknown", "unknown", None, 40)),
    ],
)
def test_a_training_under_plain_python_is_summarized_after_its_end(
    tmp_path: Path, how: str, code: int, told: tuple[object, ...], untold: tuple[object, ...]
) -> None:
    result = plain_python(tmp_path, how)

    assert (result.code, result.stdout) == (code, b"summary of 40 steps\n")
    assert result.end == (told if KERNEL_TELLS else untold)
    assert not running.ring_dir(result.folder).exists()


def test_training_goes_on_after_a_shutdown_and_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    result = plain_python(tmp_path, "shutdown")

    assert result.stdout == b"summary of 40 steps\ntraining goes on\n"
    assert result.end == ("completed", "end", None, 40)  # of the run, which ended before the process did
    assert not running.ring_dir(result.folder).exists()


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [("interrupt", 0, b"interrupted\n"), ("handler", 0, b"handled: from the handler\n"), ("exit", 9, b"")],
)
def test_what_a_signal_raises_during_a_collection_is_not_lost(tmp_path: Path, how: str, code: int, said: bytes) -> None:
    script = str(running.SCRIPTS / "interrupted_collection.py")
    result = running.run(tmp_path, script, how, options=["--mode=summary"])

    assert (result.code, result.stdout) == (code, said)
    assert "ignored" not in result.stderr
