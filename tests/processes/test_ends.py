"""Shows that a run ends as its script does, whatever that is, and that the summary says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.processes import running
from tests.processes.running import RAW, RING_TRAINING

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process
SCRIPT = str(RING_TRAINING)
READY = RAW + b"ready\n"


@pytest.mark.parametrize(
    ("how", "code", "status", "ended_by", "stdout"),
    [
        ("end", 0, "completed", "end", READY + b"trained\n"),
        ("exception", 1, "failed", "exception", READY),
        ("exit7", 7, "failed", "exit", READY),
        ("_exit3", 3, "failed", "exit", READY),
        ("sigterm", 143, "killed", "signal SIGTERM", READY),
        ("sigkill", 137, "killed", "signal SIGKILL", READY),
        ("sigsegv", 139, "killed", "signal SIGSEGV", READY),
    ],
)
def test_an_end_is_passed_on_and_told(
    tmp_path: Path, how: str, code: int, status: str, ended_by: str, stdout: bytes
) -> None:
    result = running.run(tmp_path, SCRIPT, "40", how)

    assert (result.code, result.stdout) == (code, stdout)
    assert result.end == (status, ended_by, code, 40)
    assert not running.ring_dir(result.folder).exists()
    assert running.nothing_runs(tmp_path)


def test_the_exceptions_traceback_and_name_come_through(tmp_path: Path) -> None:
    result = running.run(tmp_path, SCRIPT, "40", "exception")

    assert "ValueError: the loss is nan" in result.stderr
    assert result.summary["run"]["exception"] == "ValueError"


def test_three_steps_are_too_few_for_a_verdict_and_it_says_how_many(tmp_path: Path) -> None:
    result = running.run(tmp_path, SCRIPT, "3", "end")

    assert result.end == ("completed", "end", 0, 3)
    assert result.summary["verdict"]["diagnosis"] == "INSUFFICIENT_DATA"


def test_a_script_that_never_steps_still_gets_a_summary(tmp_path: Path) -> None:
    result = running.run(tmp_path, SCRIPT, "3", "silent")

    assert (result.code, result.stdout) == (0, RAW + b"no step at all\n")
    assert result.end == ("completed", "end", 0, 0)
    assert "no step" in result.stderr.lower()


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", "2>&- <&-", "2>/dev/full >&-"])
@pytest.mark.parametrize("option", ["--mode=summary", "--save-output"])
def test_a_full_or_closed_stderr_leaves_the_exit_code_to_the_script(tmp_path: Path, streams: str, option: str) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    line = f'exec "$@" {streams}'
    done = subprocess.run(
        ["bash", "-c", line, "bash", *running.COMMAND, "run", option, "script.py"],
        cwd=tmp_path,
        env=running.environment(),
        capture_output=True,
        check=False,
        timeout=running.PATIENCE_S,
    )

    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")
    assert running.until(lambda: list((tmp_path / "logs").glob("*/final_summary.json")))


def test_words_of_ours_that_stderr_does_not_take_leave_the_exit_code_to_the_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("from traceml.recorder.guard import say; say('heard by nobody')")
    command = f'exec "{sys.executable}" script.py 2>/dev/full'

    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=running.environment(), check=False)

    assert done.returncode == 0


def test_plain_python_with_warnings_as_errors_hears_nothing_of_the_collector(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import traceml\ntraceml.init()\n")
    command = [sys.executable, "-W", "error", "-X", "dev", "script.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=running.environment(), capture_output=True, text=True, check=True, timeout=60
    )

    assert [line for line in done.stderr.splitlines() if not line.startswith("TraceML: ")] == []
    assert running.nothing_runs(tmp_path)


def test_ctrl_c_ends_script_and_launcher_by_sigint(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "5000", "end")
    running.wait_for_line(process, b"ready")
    os.killpg(process.pid, signal.SIGINT)
    result = running.finish(process, tmp_path / "logs")

    assert result.code == -signal.SIGINT
    assert result.end[:3] == ("killed", "signal SIGINT", 130)
    assert result.end[3] >= 10
    assert result.stderr.count("KeyboardInterrupt") == 1
    assert running.nothing_runs(tmp_path)


def test_a_ctrl_c_that_the_script_handles_reaches_it_once(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "5000", "interrupts")
    before = running.wait_for_line(process, b"ready")
    os.killpg(process.pid, signal.SIGINT)
    result = running.finish(process, tmp_path / "logs")

    assert result.code == 7
    assert before + result.stdout == READY + b"saving\nsaved\n"
    assert result.end[:3] == ("failed", "exit", 7)


def test_a_sigint_to_the_launcher_alone_is_passed_on(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "5000", "interrupts")
    running.wait_for_line(process, b"ready")
    os.kill(process.pid, signal.SIGINT)
    result = running.finish(process, tmp_path / "logs")

    assert result.code == 7
    assert result.stdout == b"saving\nsaved\n"


def test_a_sigterm_to_the_launcher_lets_the_script_save(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "5000", "saves")
    running.wait_for_line(process, b"ready")
    os.kill(process.pid, signal.SIGTERM)
    result = running.finish(process, tmp_path / "logs")

    assert result.code == 9
    assert result.end[:3] == ("failed", "exit", 9)


def test_a_sigterm_to_the_launcher_ends_the_whole_process_tree(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "5000", "grandchild")
    line = running.wait_for_line(process, b"grandchild").splitlines()[-1]
    running.wait_for_line(process, b"ready")
    os.kill(process.pid, signal.SIGTERM)
    result = running.finish(process, tmp_path / "logs")

    assert result.code == 143
    assert result.end[:3] == ("killed", "signal SIGTERM", 143)
    assert not psutil.pid_exists(int(line.split()[1]))
    assert running.nothing_runs(tmp_path)


def test_a_killed_collector_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "600", "end")
    running.wait_for_line(process, b"ready")
    assert running.until(lambda: running.collectors_of(tmp_path))
    for _ in range(2):
        before = {found.pid for found in running.collectors_of(tmp_path)}
        for collector in running.collectors_of(tmp_path):
            collector.kill()
        assert running.until(lambda: {found.pid for found in running.collectors_of(tmp_path)} - before)  # noqa: B023
    result = running.finish(process, tmp_path / "logs")

    assert result.code == 0
    assert result.end == ("completed", "end", 0, 600)
    assert running.nothing_runs(tmp_path)


def test_after_the_launchers_death_the_training_goes_on_and_is_summarized(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "600", "end")
    running.wait_for_line(process, b"ready")
    process.kill()
    result = running.finish(process, tmp_path / "logs")

    assert result.stdout == b"trained\n"
    assert running.until((result.folder / "final_summary.json").exists)
    assert result.end == ("completed", "end", None, 600)
    assert running.nothing_runs(tmp_path)
    assert not running.ring_dir(result.folder).exists()


def test_a_launcher_killed_before_it_said_anything_leaves_the_training_its_summary(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "200", "end")
    assert running.until(lambda: list((tmp_path / "logs").glob("*/manifest.json")))
    assert running.until(lambda: running.script_of(process.pid, SCRIPT))
    assert running.until(lambda: running.collectors_of(tmp_path))  # without one the next command brings the run home
    (folder,) = (tmp_path / "logs").iterdir()
    assert running.until(lambda: list(running.ring_dir(folder).glob("*.ring")))  # else its first word finds no reader
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    assert running.until((folder / "final_summary.json").exists)
    result = running.Result(process.returncode, b"", "", folder)
    assert result.end == ("completed", "end", None, 200)
    assert running.until(lambda: running.nothing_runs(tmp_path))


def test_a_launcher_killed_with_its_script_leaves_a_summary_that_says_so(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "5000", "end")
    running.wait_for_line(process, b"ready")
    assert running.until(lambda: running.collectors_of(tmp_path))
    os.killpg(process.pid, signal.SIGKILL)
    result = running.finish(process, tmp_path / "logs")

    assert running.until((result.folder / "final_summary.json").exists)
    assert result.end[:2] == ("killed", "launcher")
    assert running.nothing_runs(tmp_path)
