"""Shows with real processes that a training without a core is not told to change its script, and one that sleeps is."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import pytest

from tests.processes import running

pytestmark = [
    pytest.mark.process,
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel tells no waits for a core"),
]
SCRIPT = str(running.SCRIPTS / "crowded.py")
SPINS = "import time\nend = time.monotonic() + 90\nwhile time.monotonic() < end: pass"


@contextmanager
def crowded_core() -> Iterator[str]:
    """A core that three other processes want all the time."""
    core = max(os.sched_getaffinity(0))
    spinning = [subprocess.Popen([sys.executable, "-c", SPINS]) for _ in range(3)]
    try:
        for process in spinning:
            os.sched_setaffinity(process.pid, {core})
        yield str(core)
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def trained(cwd: Path, *, num_steps: int, sleep_s: float) -> running.Result:
    with crowded_core() as core:
        return running.run(cwd, SCRIPT, core, str(num_steps), str(sleep_s), options=["--mode=summary"])


def test_steps_that_wait_for_a_core_are_not_called_the_scripts_fault(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=1_500, sleep_s=0)

    summary = result.summary
    told = [finding for finding in summary["step_time"]["findings"] if "OVERHEAD" in finding["diagnosis"]]
    assert result.code == 0
    assert summary["process"]["waited_for_core_pct"] > 10
    assert summary["verdict"]["severity"] == "info"
    assert all("waited for a core" in finding["summary"] for finding in told)
    assert "waited for a core" in " ".join(result.stderr.split())


def test_a_loader_that_sleeps_is_input_bound_on_a_crowded_core_too(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=150, sleep_s=0.02)

    verdict = result.summary["verdict"]
    assert result.code == 0
    assert (verdict["diagnosis"], verdict["severity"]) == ("INPUT_BOUND", "critical")
    assert "for a core" not in verdict["summary"] + verdict["why"]
    assert verdict["next"].startswith("num_workers=")
