"""Starts `traceml run` as a person would, and tells how it went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

import psutil

SCRIPTS = Path(__file__).parent / "scripts"
RING_TRAINING = SCRIPTS / "ring_training.py"
COMMAND = (sys.executable, str(SCRIPTS / "traceml_command.py"))
SOURCE = Path(__file__).parents[2] / "src"
RAW = b"\xff\x00 raw bytes \r\n"
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Result:
    """What a run left: for the shell, and in its folder."""

    code: int
    stdout: bytes
    stderr: str
    folder: Path

    @property
    def summary(self) -> Mapping[str, Any]:
        """`final_summary.json`; the launcher waits for it 5 s at most, which a crowded machine may exceed."""
        path = self.folder / "final_summary.json"
        until(path.exists)
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    @property
    def end(self) -> tuple[str, str, Optional[int], int]:
        """Status, ended_by, exit code and number of steps."""
        run = self.summary["run"]
        return run["status"], run["ended_by"], run["exit_code"], run["steps"]


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would change a run, and with the checkout's package first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRACEML", "PYTEST"))}
    return {**kept, "PYTHONPATH": str(SOURCE), **more}


def start(
    cwd: Path,
    *script: str,
    options: Sequence[str] = (),
    environ: Optional[Mapping[str, str]] = None,
) -> subprocess.Popen[bytes]:
    """`traceml run OPTIONS SCRIPT...` in its own session, with pipes."""
    command = [*COMMAND, "run", *options, *script]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(environment() if environ is None else environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes], logs: Path) -> Result:
    """Waits for its end; the run folder is the only one in `logs`."""
    out, err = process.communicate(timeout=PATIENCE_S)
    folders = sorted(logs.iterdir()) if logs.is_dir() else []
    folder = folders[-1] if folders else logs
    return Result(process.returncode, out, err.decode(errors="replace"), folder)


def run(cwd: Path, *script: str, options: Sequence[str] = (), environ: Optional[Mapping[str, str]] = None) -> Result:
    """The whole run; logs lie in `cwd/logs`."""
    return finish(start(cwd, *script, options=options, environ=environ), cwd / "logs")


def wait_for_line(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    """Reads the script's stdout up to a line that begins so; returns everything read."""
    assert process.stdout is not None
    read = b""
    for line in process.stdout:
        read += line
        if line.startswith(text):
            return read
    raise AssertionError(f"the script ended without {text!r}: {read!r}")


def processes_of(cwd: Path) -> list[str]:
    """The command lines of all living processes that work for a run below `cwd`."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), process.environ().get("TRACEML_RUN", "")]
            is_dead = process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if not is_dead and process.pid != os.getpid() and any(str(cwd) in word for word in words):
            found.append(" ".join(words))
    return found


def until(condition: Any, *, patience_s: float = 20.0) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def nothing_runs(cwd: Path) -> bool:
    """Whether every process of a run below `cwd` is gone within seconds."""
    return until(lambda: not processes_of(cwd), patience_s=8.0)


def collectors_of(cwd: Path) -> list[psutil.Process]:
    """The collector processes of runs below `cwd`."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "--run" in words and any(str(cwd) in word for word in words):
            found.append(process)
    return found


def ring_dir(folder: Path) -> Path:
    """Where a run's rings were."""
    return Path(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["ring_dir"])


def script_of(launcher_pid: int, script: str) -> bool:
    """Whether the launcher has started its script."""
    try:
        launcher = psutil.Process(launcher_pid)
        words, children = launcher.cmdline(), launcher.children()  # a child has those words until it runs
        return any(script in found for found in (child.cmdline() for child in children) if found != words)
    except psutil.Error:
        return False
