"""Shows with real signals that no exception of the script's own handler gets lost in our lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import running

pytestmark = [pytest.mark.process, pytest.mark.torch]
SCRIPT = str(running.SCRIPTS / "timeouts.py")


@pytest.mark.parametrize(
    ("how", "times"), [("traced", "2000"), pytest.param("inferred", "500", marks=pytest.mark.long)]
)
def test_every_exception_of_a_handler_arrives_and_the_recording_goes_on(tmp_path: Path, how: str, times: str) -> None:
    command = [sys.executable, "-W", "ignore", SCRIPT, times, how]
    bare, traced = (
        subprocess.run(
            command, cwd=tmp_path, env=running.environment(**more), capture_output=True, timeout=240, check=False
        )
        for more in ({"TRACEML_DISABLED": "1"}, {})
    )

    assert traced.stdout == bare.stdout == f"raised {times} caught {times} lost 0 weights False\n".encode()
    (folder,) = (tmp_path / "logs").iterdir()
    assert running.until((folder / "final_summary.json").exists)
    summary = json.loads((folder / "final_summary.json").read_text(encoding="utf-8"))
    finished = int(traced.stderr.partition(b"steps ")[2].split()[0])
    num_good = summary["run"]["steps"] - summary["run"]["failed_steps"]
    assert num_good >= (finished if how == "traced" else 0.9 * finished)  # an update's own mark may be what was missed
    assert summary["coverage"]["faults"] == []
