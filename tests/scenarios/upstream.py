"""Runs a scenario with several ranks under upstream, another implementation, and says whom it names.

`TRACEML_UPSTREAM_PYTHON` names the python of an environment with `traceml-ai` and torch in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Optional

VARIABLE = "TRACEML_UPSTREAM_PYTHON"
TIMEOUT_S = 300
#: The scenarios' own `import traceml` finds this: upstream's names, and nothing for those that it does not have.
SHIM = """
import contextlib
import traceml_ai

def __getattr__(name):
    return getattr(traceml_ai, name, lambda *args, **kwargs: contextlib.nullcontext())
"""


def find_upstream() -> Optional[str]:
    """Its command line, where there is one."""
    python = os.environ.get(VARIABLE)
    command = Path(python).with_name("traceml") if python else None
    return str(command) if command is not None and command.exists() else None


def run_upstream(traceml: str, scripts: Path, call: str, *, ranks: int) -> str:
    """`rank 2 forward`, `rank 2` where no phase is named, `nobody`, or why there is no summary."""
    script, *script_args = call.split()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "traceml.py").write_text(SHIM, encoding="utf-8")
        options = [
            "--mode=summary",
            "--logs-dir",
            f"{folder}/logs",
            "--run-name",
            "one",
            "--nproc-per-node",
            str(ranks),
        ]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TRACEML_")}
        done = subprocess.run(
            [traceml, "run", *options, str(scripts / script), "--args", *script_args],
            cwd=folder,
            env={**environ, "PYTHONPATH": f"{folder}{os.pathsep}{scripts}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        summary = Path(folder, "logs", "one", "final_summary.json")
        if not summary.exists():
            return f"exit {done.returncode}, no summary"
        found = json.loads(summary.read_text(encoding="utf-8"))["step_time"]["diagnosis"]
    if "STRAGGLER" not in found["kind"] or not found["ranks"]:
        return "nobody"
    return f"rank {found['ranks'][0]} {found['phase'] or ''}".rstrip()
