"""Runs the trainings that are compared under upstream, and says what its `compare` makes of a pair."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Optional, Sequence

from contenders import UPSTREAM_VARIABLE

TRAINING = Path(__file__).with_name("compared_training.py")
TIMEOUT_S = 300


def find_upstream() -> Optional[str]:
    """Its command line, where TRACEML_UPSTREAM_PYTHON names an environment that has it."""
    python = os.environ.get(UPSTREAM_VARIABLE)
    command = Path(python).with_name("traceml") if python else None
    return str(command) if command is not None and command.exists() else None


def verdict_of(traceml: str, sides: Sequence[Sequence[float]], *, kind: str, steps: int) -> str:
    """The verdict on two runs, one after the other.

    Args:
        traceml: Its command line.
        sides: What each phase of each run is to take.
        kind: `sleep` or `cpu`.
        steps: Of each run.

    Raises:
        RuntimeError: A run or the comparison left nothing.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRACEML_")}
    with tempfile.TemporaryDirectory(prefix="traceml-compare-") as folder:
        for name, amounts in zip("ab", sides):
            options = ["--mode=summary", "--logs-dir", f"{folder}/logs", "--run-name", name]
            arguments = ["traceml_ai", str(steps), kind, *(str(amount) for amount in amounts)]
            _run([traceml, "run", *options, str(TRAINING), "--args", *arguments], folder, environ)
        summaries = [f"{folder}/logs/{name}/final_summary.json" for name in "ab"]
        _run([traceml, "compare", "--output", f"{folder}/compared", *summaries], folder, environ)
        found = Path(folder, "compared.json")
        if not found.exists():
            raise RuntimeError("upstream compared nothing")
        return str(json.loads(found.read_text(encoding="utf-8"))["verdict"]["status"])


def _run(command: list[str], cwd: str, environ: dict[str, str]) -> None:
    subprocess.run(command, cwd=cwd, env={**environ, "CI": "true"}, capture_output=True, timeout=TIMEOUT_S, check=False)
