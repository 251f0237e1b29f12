"""Shows that off is off, and that an end stays the training's own even when everything of ours fails."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import running
from tests.trainings import ways

pytestmark = [pytest.mark.training, pytest.mark.torch]
OFF = ways.HERE / "faults" / "off.py"
EXITS = ways.HERE / "faults" / "exits.py"
NOTHING = {
    "patched": [],
    "hooks": False,
    "importers": False,
    "threads": 0,
    "files": [],
    "recorder": False,
    "slot": False,
    "summary": False,
    "run": None,
    "logs": False,
}


def inside(stdout: bytes) -> dict[str, Any]:
    found: dict[str, Any] = ast.literal_eval(stdout.decode())
    found.pop("native")
    return found


def test_disabled_means_no_thread_no_socket_no_file_and_no_patch(tmp_path: Path) -> None:
    done = ways.plain_python(tmp_path, OFF, ways.environment(strict=True, TRACEML_DISABLED="1"))

    assert (done.returncode, done.stderr) == (7, b"")
    assert inside(done.stdout) == NOTHING
    assert list(tmp_path.iterdir()) == []


def test_disabled_under_traceml_run_is_the_bare_command(tmp_path: Path) -> None:
    environ = ways.environment(strict=True, TRACEML_DISABLED="1")
    result = running.run(tmp_path, str(OFF), environ=environ)

    assert (result.code, result.stderr) == (7, "")
    assert inside(result.stdout) == NOTHING
    assert list(tmp_path.iterdir()) == []


def test_the_same_script_says_what_is_on_when_it_is_not_off(tmp_path: Path) -> None:
    done = ways.plain_python(tmp_path, OFF, ways.environment(strict=True))
    found = inside(done.stdout)

    assert done.returncode == 7
    assert {"engine", "save", "iter", "next"} <= set(found["patched"])
    assert (found["hooks"], found["recorder"], found["slot"], found["logs"]) == (True, True, True, True)
    assert found["threads"] == 0
    assert [path for path in found["files"] if path.endswith(".ring")] != []
    assert [path for path in found["files"] if "socket:" in path] == []


@pytest.mark.parametrize(("how", "code"), [("exit", 7), ("raise", 1)])
def test_an_end_is_the_trainings_own_when_every_hook_of_ours_fails(tmp_path: Path, how: str, code: int) -> None:
    def run(name: str, **more: str) -> subprocess.CompletedProcess[bytes]:
        (tmp_path / name).mkdir()
        command = [sys.executable, str(EXITS), how]
        environ = ways.environment(strict=True, **more)
        return subprocess.run(command, cwd=tmp_path / name, env=environ, capture_output=True, check=False)

    alone, watched = run("bare"), run("traced", TRACED="1")
    ours = [line for line in watched.stderr.decode().splitlines() if line.startswith("TraceML: a fault of ours")]

    assert (alone.returncode, watched.returncode) == (code, code)
    assert watched.stdout == alone.stdout
    assert (tmp_path / "bare/model.pt").read_bytes() == (tmp_path / "traced/model.pt").read_bytes()
    assert len(ours) == 1
    assert (b"ValueError: the loss is nan" in watched.stderr) == (how == "raise")
