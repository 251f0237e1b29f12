"""Runs a script bare, traced (with `init()` and `trace_step`), or untouched under `traceml run`."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from tests.processes import running

HERE = Path(__file__).parent
RECORDER = running.SOURCE / "traceml" / "recorder"
TIMEOUT_S = 300
#: Whether steps can be inferred and `traceml run` reaches an untouched script.
KNOWS_ZERO_CODE = (RECORDER / "hooks" / "inference.py").exists() and (running.SOURCE / "traceml/launch/entry").is_dir()
WHY_PENDING = "zero code is not in this tree yet: no inferred steps, or no way into an untouched script"


@dataclass(frozen=True)
class Bare:
    """What a script does without TraceML: for the shell, and in its working folder."""

    code: int
    stdout: bytes
    stderr: str
    cwd: Path


@functools.cache
def bare(script: Path, strict: bool = True) -> Bare:
    """Without any import of traceml, once a session; `strict`: each warning is an error."""
    cwd = Path(tempfile.mkdtemp(prefix="bare-"))
    done = plain_python(cwd, script, environment(strict=strict))
    return Bare(done.returncode, done.stdout, done.stderr.decode(errors="replace"), cwd)


def traced(cwd: Path, script: Path) -> running.Result:
    """With two lines of TraceML, under `traceml run`."""
    environ = environment(strict=True, TRACED="1")
    return running.run(cwd, str(script), options=["--mode=summary"], environ=environ)


def zero_code(cwd: Path, script: Path) -> running.Result:
    """Untouched, under `traceml run`."""
    return running.run(cwd, str(script), options=["--mode=summary"], environ=environment(strict=True))


def plain_python(cwd: Path, script: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """`python script`, as a person types it."""
    command = [sys.executable, str(script)]
    return subprocess.run(
        command,
        cwd=cwd,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def environment(*, strict: bool, **more: str) -> dict[str, str]:
    """Ours, and with `strict` each warning is an error: one of ours would end the training."""
    return running.environment(**({"PYTHONWARNINGS": "error"} if strict else {}), **more)


def phase_of(summary: Mapping[str, Any], name: str) -> tuple[float, int]:
    """The share of a phase in percent, and in how many steady steps it was; (-1, 0) when it was never seen."""
    found = summary["step_time"]["phases"].get(name) or {}
    share = found.get("pct")
    return (-1.0 if share is None else share, found.get("count", 0))
