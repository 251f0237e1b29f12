"""Shows that a child of spawn or forkserver, whose import of the script calls init(), is nothing until it trains."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch]
SCRIPT = str(running.SCRIPTS / "unguarded.py")


def play(cwd: Path, *arguments: str, is_launched: bool) -> tuple[str, list[int]]:
    """Stderr, and the number of steps of each run under logs, the smallest first."""
    if is_launched:
        result = running.run(cwd, SCRIPT, *arguments)
        assert (result.code, result.stdout) == (0, b"trained\n"), result.stderr
        said = result.stderr
    else:
        done = subprocess.run(
            [sys.executable, SCRIPT, *arguments],
            cwd=cwd,
            env=running.environment(),
            capture_output=True,
            text=True,
            timeout=running.PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
        said = done.stderr
    assert running.nothing_runs(cwd)
    folders = list((cwd / "logs").iterdir())
    assert running.until(lambda: all((folder / "final_summary.json").exists() for folder in folders))
    runs = [json.loads((folder / "final_summary.json").read_text(encoding="utf-8"))["run"] for folder in folders]
    return said, sorted(run["steps"] for run in runs)


@pytest.mark.parametrize("context", ["spawn", pytest.param("forkserver", marks=pytest.mark.long)])
@pytest.mark.parametrize("is_launched", [False, True], ids=["python", "traceml run"])
def test_loader_workers_are_no_runs(tmp_path: Path, context: str, is_launched: bool) -> None:
    said, steps = play(tmp_path, "workers", context, is_launched=is_launched)

    assert steps == [10]
    assert "other processes" not in said
    if not is_launched:
        assert said.count("\n") == said.count("TraceML: ") == 2  # where it records, and the verdict


@pytest.mark.parametrize("context", ["spawn", pytest.param("forkserver", marks=pytest.mark.long)])
def test_under_plain_python_a_child_is_a_run_once_it_trains(tmp_path: Path, context: str) -> None:
    said, steps = play(tmp_path, "beside", context, is_launched=False)

    assert steps == [10, 10]
    assert said.count("recording into") == 2


@pytest.mark.parametrize("context", [pytest.param("spawn", marks=pytest.mark.long), "forkserver"])
def test_under_traceml_run_the_child_that_trains_alone_is_the_only_rank_of_a_run_of_its_own(
    tmp_path: Path, context: str
) -> None:
    said, steps = play(tmp_path, "alone", context, is_launched=True)

    assert steps == [0, 10]
    assert said.count("each a run of its own") == 1
