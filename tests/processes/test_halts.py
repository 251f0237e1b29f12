"""Shows with real processes that a step in which training was stopped or traced is left out, and said; no other is."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

import psutil
import pytest

from tests.processes import running

pytestmark = [pytest.mark.process, pytest.mark.torch]
SCRIPT = str(running.SCRIPTS / "halting.py")
LEFT_OUT = "1 step was left out: the process was stopped or traced by a debugger"


def told(folder: Path) -> tuple[int, int, Sequence[str], Sequence[tuple[int, str]]]:
    """Steps, halted steps, notes about them, and the events: step and why."""
    summary: Mapping[str, Any] = running.Result(0, b"", "", folder).summary
    notes = [note for note in summary["coverage"]["notes"] if "left out" in note]
    events = [(event["step"], event["text"]) for event in summary["events"] if event["kind"] == "halted"]
    return summary["run"]["steps"], summary["run"]["halted_steps"], notes, events


def longest_ms(folder: Path) -> float:
    longest: float = running.Result(0, b"", "", folder).summary["step_time"]["period_ms"]["max"]
    return longest


def pid_of(process: subprocess.Popen[bytes]) -> int:
    """The script's own process, below the launcher."""

    def found() -> list[int]:
        children = psutil.Process(process.pid).children(recursive=True)
        return [child.pid for child in children if child.cmdline()[1:2] == [SCRIPT]]

    assert running.until(found)
    return found()[0]


def test_a_step_in_which_the_process_was_stopped_is_left_out(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "stop")
    script = pid_of(process)
    assert running.until(lambda: Path(f"/proc/{script}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    time.sleep(2)
    os.kill(script, signal.SIGCONT)

    result = running.finish(process, tmp_path / "logs")

    assert result.code == 0
    assert told(result.folder) == (60, 1, [LEFT_OUT], [(30, "stopped")])
    assert longest_ms(result.folder) < 1900


@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb")
def test_a_step_that_gdb_held_is_left_out(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "held")
    script = pid_of(process)
    command = ["gdb", "-nx", "-q", "-batch", "-p", str(script), "-ex", "shell sleep 1", "-ex", "detach"]
    assert running.until(lambda: "libtorch_cpu" in Path(f"/proc/{script}/maps").read_text())
    time.sleep(3)  # until it is held; earlier, the startup is
    gdb = subprocess.run(command, capture_output=True, timeout=50, check=False)
    (tmp_path / "go").touch()

    result = running.finish(process, tmp_path / "logs")

    if b"Operation not permitted" in gdb.stderr:
        pytest.skip("gdb may not attach here")
    assert result.code == 0
    assert told(result.folder) == (60, 1, [LEFT_OUT], [(30, "traced")])


class Terminal:
    """A person at a terminal, for a command that may be stopped in a debugger."""

    def __init__(self, cwd: Path, *command: str) -> None:
        self._master, slave = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=running.environment(TERM="dumb"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def read_to(self, text: str) -> str:
        """What comes up to this text, and after what was read before."""
        deadline = time.monotonic() + running.PATIENCE_S
        while text not in self.text and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._master, 4096).decode(errors="replace")
                except OSError:
                    break
        before, found, self.text = self.text.partition(text)
        assert found, f"no {text!r} in {before!r}"
        return before

    def type(self, line: str) -> None:
        os.write(self._master, line.encode() + b"\n")

    def close(self) -> int:
        code = self.process.wait(timeout=running.PATIENCE_S)
        os.close(self._master)
        return code


def at_the_breakpoint(cwd: Path, *command: str, pause_s: float = 1.5) -> str:
    """Waits at a breakpoint's prompt, looks at a local variable, and goes on; what was seen there."""
    terminal = Terminal(cwd, *command)
    seen = terminal.read_to("(Pdb) ")
    time.sleep(pause_s)
    terminal.type("p secret")
    seen += terminal.read_to("(Pdb) ")
    terminal.type("w")
    terminal.read_to("(Pdb) ")
    terminal.type("continue")
    seen += terminal.read_to("loss ")
    seen += "loss " + terminal.read_to("\r\n")
    assert terminal.close() == 0
    return seen


def test_a_breakpoint_lands_in_the_users_frame_and_its_step_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    bare = at_the_breakpoint(tmp_path / "bare", *_disabled(SCRIPT, "breakpoint"), pause_s=0.1)

    traced = at_the_breakpoint(tmp_path, *running.COMMAND, "run", "--mode=summary", SCRIPT, "breakpoint")

    assert "30030" in traced
    assert traced == bare
    (folder,) = (tmp_path / "logs").iterdir()
    assert running.until((folder / "final_summary.json").exists)
    assert told(folder) == (60, 1, [LEFT_OUT], [(30, "traced")])
    assert longest_ms(folder) < 1400


def _disabled(*script: str) -> tuple[str, ...]:
    return ("env", "TRACEML_DISABLED=1", sys.executable, *script)


def test_a_breakpoint_under_plain_python_is_left_out(tmp_path: Path) -> None:
    at_the_breakpoint(tmp_path, sys.executable, SCRIPT, "breakpoint")

    (folder,) = (tmp_path / "logs").iterdir()
    assert running.until((folder / "final_summary.json").exists)
    assert told(folder) == (60, 1, [LEFT_OUT], [(30, "traced")])


def test_a_script_under_pdb_with_a_breakpoint_set_is_traced_from_its_first_step_on(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, sys.executable, "-m", "pdb", SCRIPT, "none")
    line = next(n for n, text in enumerate(Path(SCRIPT).read_text().splitlines(), 1) if "optimizer.step()" in text)
    terminal.read_to("(Pdb) ")
    terminal.type(f"break {line}, step == 3")
    terminal.read_to("(Pdb) ")
    terminal.type("continue")
    terminal.read_to("(Pdb) ")
    terminal.type("continue")
    terminal.read_to("loss ")
    terminal.read_to("(Pdb) ")  # it would begin again
    terminal.type("quit")
    terminal.close()

    (folder,) = (tmp_path / "logs").iterdir()
    assert running.until((folder / "final_summary.json").exists)
    assert told(folder)[:2] == (60, 60)
    verdict = running.Result(0, b"", "", folder).summary["verdict"]
    assert (verdict["diagnosis"], verdict["next"]) == ("INSUFFICIENT_DATA", "run it without the debugger")
