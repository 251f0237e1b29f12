"""Holds the look from outside to what the kernel says of a real process, stopped, traced and running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.processes.running import until
from traceml.collect.halting import Looks, why_halted


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


def test_a_process_is_stopped_until_it_is_told_to_go_on(sleeper: int) -> None:
    found = [why_halted(sleeper)]
    os.kill(sleeper, signal.SIGSTOP)
    assert until(lambda: why_halted(sleeper))
    found.append(why_halted(sleeper))
    os.kill(sleeper, signal.SIGCONT)

    assert found == ["", "stopped"]
    assert until(lambda: not why_halted(sleeper))


def test_a_process_that_is_stopped_is_seen_without_a_proc_too(sleeper: int, tmp_path: Path) -> None:
    os.kill(sleeper, signal.SIGSTOP)

    assert until(lambda: why_halted(sleeper, tmp_path / "no proc") == "stopped")


@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb")
def test_a_process_under_gdb_is_traced(sleeper: int) -> None:
    command = ["gdb", "-nx", "-q", "-p", str(sleeper), "-ex", "set confirm off"]
    gdb = subprocess.Popen(command, stdin=-1, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if not until(lambda: why_halted(sleeper) == "traced", patience_s=15):
        gdb.kill()
        _, said = gdb.communicate()
        pytest.skip(f"gdb cannot attach here: {said.decode(errors='replace')[-200:]}")
    gdb.communicate(b"detach\nquit\n", timeout=20)

    assert until(lambda: not why_halted(sleeper))


def test_a_process_that_is_gone_is_not_halted() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert why_halted(process.pid) == ""


def test_looking_again_and_again_sees_what_one_look_sees(sleeper: int) -> None:
    looks = Looks()
    found = [looks.why_halted(sleeper)]
    os.kill(sleeper, signal.SIGSTOP)
    assert until(lambda: looks.why_halted(sleeper))
    found.append(looks.why_halted(sleeper))
    os.kill(sleeper, signal.SIGCONT)

    assert found == ["", "stopped"]
    assert until(lambda: not looks.why_halted(sleeper))
    looks.close()


def test_looking_again_at_a_process_that_has_gone_finds_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    looks = Looks()
    found = [looks.why_halted(process.pid)]
    process.communicate()

    assert [*found, looks.why_halted(process.pid)] == ["", ""]
    looks.close()
