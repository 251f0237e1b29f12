"""Compares real runs of one script, one of them beside a task that wants its core: the difference is the machine's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.processes import running

pytestmark = [
    pytest.mark.process,
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel tells no waits for a core"),
]
CORE = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
SPINS = "import time\nend = time.monotonic() + 90\nwhile time.monotonic() < end: pass"


@contextmanager
def hog() -> Iterator[None]:
    """Wants the core all the time."""
    with subprocess.Popen([sys.executable, "-c", SPINS]) as process:
        os.sched_setaffinity(process.pid, {CORE})
        try:
            yield
        finally:
            process.kill()


def trained(cwd: Path, *, num_steps: int, sleep_s: float) -> str:
    cwd.mkdir()
    script = [str(running.SCRIPTS / "crowded.py"), str(CORE), str(num_steps), str(sleep_s)]
    result = running.run(cwd, *script, options=["--mode=summary"])
    assert result.code == 0
    return str(result.folder)


def compared(before: str, after: str) -> Any:
    done = subprocess.run(
        [*running.COMMAND, "compare", "--json", before, after],
        env=running.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("num_steps", "sleep_s"), [(4_000, 0.0), (150, 0.01)])
def test_a_run_beside_a_hog_is_no_regression_and_none_of_its_phases_moved(
    tmp_path: Path, num_steps: int, sleep_s: float
) -> None:
    alone = trained(tmp_path / "alone", num_steps=num_steps, sleep_s=sleep_s)
    with hog():
        crowded = trained(tmp_path / "crowded", num_steps=num_steps, sleep_s=sleep_s)

    found = compared(alone, crowded)

    assert found["verdict"]["diagnosis"] in ("UNDECIDED", "SAME")
    assert [row["phase"] for row in found["phases"] if row["moved"]] == []
