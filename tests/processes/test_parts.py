"""Shows which process of a run is a rank, which a run of its own, and which stays silent."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch]
PARTS = str(running.SCRIPTS / "parts.py")


def steps_of(folder: Path) -> dict[int, int]:
    """The last step of each rank in a run's summary, which may still be on its way."""
    assert running.until((folder / "final_summary.json").exists)
    found = json.loads((folder / "final_summary.json").read_text(encoding="utf-8"))
    return {row["rank"]: row["last_step"] for row in found["coverage"]["ranks"]}


def runs_in(cwd: Path) -> dict[str, dict[int, int]]:
    """Every run under logs by what stands behind the first one's name, with the steps of its ranks."""
    folders = sorted((cwd / "logs").iterdir(), key=lambda path: len(path.name))
    base = folders[0].name
    return {path.name[len(base) :].rstrip("0123456789"): steps_of(path) for path in folders}


def test_loader_workers_are_no_ranks_whether_forked_or_spawned(tmp_path: Path) -> None:
    result = running.run(tmp_path, PARTS, "workers")

    assert result.stdout == b"trained\n"
    assert runs_in(tmp_path) == {"": {0: 20}}
    assert running.nothing_runs(tmp_path)


def test_a_child_that_trains_beside_its_parent_is_a_run_of_its_own_and_is_named_at_the_end(tmp_path: Path) -> None:
    result = running.run(tmp_path, PARTS, "twice")

    assert runs_in(tmp_path) == {"": {0: 10}, "-child-": {0: 7}}
    assert result.stderr.count("TraceML: ") == 1
    assert "each a run of its own: " in result.stderr
    assert running.nothing_runs(tmp_path)


def test_a_script_that_trains_behind_its_child_ends_with_its_own_card_and_is_told_of_the_child(tmp_path: Path) -> None:
    result = running.run(tmp_path, PARTS, "second")

    assert runs_in(tmp_path) == {"": {0: 7}, "-child-": {0: 10}}
    assert re.search(r"\b10 (inferred )?steps in ", result.stderr)
    assert "a process that the script started trained first, `traceml view " in result.stderr
    assert "each a run of its own" not in result.stderr
    assert running.nothing_runs(tmp_path)


def test_a_child_that_trains_for_its_parent_is_the_run(tmp_path: Path) -> None:
    result = running.run(tmp_path, PARTS, "helper")

    assert runs_in(tmp_path) == {"": {0: 10}}
    assert "TraceML: " not in result.stderr


def test_spawned_processes_with_a_rank_are_ranks_of_the_run(tmp_path: Path) -> None:
    running.run(tmp_path, PARTS, "ranks", str(tmp_path))

    assert runs_in(tmp_path) == {"": {0: 10, 1: 11}}


def test_torchrun_is_silent_and_what_it_starts_are_the_ranks(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", PARTS, "torchrun")

    result = running.run(tmp_path, "--", *command)

    assert (result.code, sorted(result.stdout)) == (0, sorted(b"trained\n" * 2))  # two write at once
    assert runs_in(tmp_path) == {"": {0: 10, 1: 11}}


def test_the_only_training_of_a_job_is_its_run_and_a_sweep_in_it_one_run_a_trial(tmp_path: Path) -> None:
    job = tmp_path / "job.sh"
    job.write_text(f'"{sys.executable}" "{PARTS}" one\n"{sys.executable}" "{PARTS}" sweep\nexit 5\n', encoding="utf-8")

    result = running.run(tmp_path, "--", "bash", str(job))

    assert (result.code, result.stdout) == (5, b"trained\n" * 2)
    assert runs_in(tmp_path) == {"": {0: 20}, "-": {0: 10}}


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("./not-executable", 126)])
def test_a_command_that_cannot_be_started_is_one_line_and_a_shells_exit_code(
    tmp_path: Path, command: str, code: int
) -> None:
    (tmp_path / "not-executable").touch(mode=0o600)

    result = running.run(tmp_path, "--", command)

    assert result.code == code
    assert result.stderr.count("\n") == 1
    assert command in result.stderr
    assert not (tmp_path / "logs").exists()


def test_a_python_that_is_closed_to_us_is_named_before_and_after(tmp_path: Path) -> None:
    result = running.run(tmp_path, "--", sys.executable, "-I", "-c", "print('alone')")

    assert (result.code, result.stdout) == (0, b"alone\n")
    assert "`python -I` cannot be reached" in result.stderr
    assert "no Python of this run was seen to import torch" in result.stderr


def test_a_check_tells_what_is_seen_and_training_goes_on(tmp_path: Path) -> None:
    script = running.SCRIPTS / "parts.py"
    (tmp_path / "script.py").write_text(
        f"import sys, time; sys.path.insert(0, {os.fspath(script.parent)!r}); import parts\n"
        "parts.train(num_steps=30); time.sleep(1.5); print('trained on')\n",
        encoding="utf-8",
    )

    result = running.run(tmp_path, "--check", "script.py")

    assert result.stdout == b"trained on\n"
    assert "check of script.py · 20 steps" in result.stderr
    assert "Everything a verdict needs is seen. Tracing has stopped" in result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 80
    assert steps_of(result.folder) == {0: 20}
