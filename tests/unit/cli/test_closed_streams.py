"""Shows that full and closed streams change neither exit codes nor leave a traceback."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.unit.report.test_open_run import run_folder

if TYPE_CHECKING:
    from pathlib import Path

FULL = "/dev/full"
NO_ROOM = "traceml: Cannot write to stdout (No space left on device). Make room, or send the answer elsewhere.\n"


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash in which `traceml` is ours."""
    command = f'traceml() {{ "{sys.executable}" -m traceml "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=cwd, timeout=60)


@pytest.mark.parametrize(
    "words", ["--help", "--version", "run --help", "view vit", "view --json vit", "runs --logs-dir logs"]
)
def test_a_full_stdout_is_one_line_and_exit_code_2(tmp_path: Path, words: str) -> None:
    run_folder(tmp_path / "logs" / "vit")

    done = shell(f"traceml {words} > {FULL}", tmp_path)

    assert (done.returncode, done.stderr) == (2, NO_ROOM)


@pytest.mark.parametrize("streams", [f">{FULL} 2>{FULL}", f">{FULL} 2>&-", f">{FULL} 2>&- <&-"])
def test_with_nowhere_to_speak_it_is_silent(tmp_path: Path, streams: str) -> None:
    done = shell(f"traceml --help {streams}", tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.parametrize("streams", [f"2>{FULL}", "2>&-"])
def test_a_mistake_nobody_can_read_about_is_still_exit_code_2(tmp_path: Path, streams: str) -> None:
    done = shell(f"traceml view nothing {streams}", tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
