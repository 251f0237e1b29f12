"""Holds `make gpu-check` to its word where there is no GPU: one message, exit code 0, nothing installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "gpu" / "check.py"


def run(path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", str(SCRIPT)] if not path else [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""},
    )


def test_without_a_gpu_it_says_so_and_is_right() -> None:
    done = run("as it is")

    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "gpu-check: skipped, there is no GPU that torch can use here\n",
        "",
    )


def test_without_torch_too() -> None:
    done = run("")  # -S: no site-packages

    assert (done.returncode, done.stdout) == (0, "gpu-check: skipped, there is no GPU that torch can use here\n")


def test_make_runs_it_and_installs_nothing() -> None:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("gpu-check:"))

    assert lines[at].split("##")[0].strip() == "gpu-check:"  # no prerequisite makes an environment
    assert lines[at + 1].strip() == "@$(GPU_PYTHON) tests/gpu/check.py"
