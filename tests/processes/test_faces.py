"""Shows where no panel can be: nothing stands between the script and its descriptors, and no escape is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Mapping

import pytest

pytest.importorskip("pyte")

from tests.processes import running, terminal
from tests.processes.terminal import Terminal, traceml

pytestmark = pytest.mark.process
SCRIPT = str(running.SCRIPTS / "prompting.py")
TRAINING = str(running.RING_TRAINING)
LINE = re.compile(r"^TraceML: (step [\d,]+|no step yet)", re.MULTILINE)


def _nothing(_: Path) -> Mapping[int, Any]:
    return {}


def _stdin_is_no_terminal(_: Path) -> Mapping[int, Any]:
    return {0: subprocess.DEVNULL}


def _stdout_is_a_file(cwd: Path) -> Mapping[int, Any]:
    return {1: os.open(cwd / "out", os.O_WRONLY | os.O_CREAT)}


def _stdout_is_a_pipe(cwd: Path) -> Mapping[int, Any]:
    reader, writer = os.pipe()
    # sh ends at once and leaves it behind, as nobody's child
    subprocess.run("exec 3<&0; tee out <&3 > /dev/null &", shell=True, cwd=cwd, stdin=reader, check=True)
    os.close(reader)
    return {1: writer}


Row = tuple[Callable[[Path], Mapping[int, Any]], dict[str, str], tuple[str, ...], str]
ROWS: dict[str, Row] = {
    "stdin is /dev/null": (_stdin_is_no_terminal, {}, (), "[False, True, True]"),
    "stdout is a file": (_stdout_is_a_file, {}, (), "[True, False, True]"),
    "stdout is a pipe (`| tee`)": (_stdout_is_a_pipe, {}, (), "[True, False, True]"),
    "TERM=dumb": (_nothing, {"TERM": "dumb"}, (), "[True, True, True]"),
    "no TERM": (_nothing, {"TERM": ""}, (), "[True, True, True]"),
    "a TERM that terminfo does not know": (_nothing, {"TERM": "nonsense"}, (), "[True, True, True]"),
    "CI": (_nothing, {"CI": "true"}, (), "[True, True, True]"),
    "--mode=summary": (_nothing, {}, ("--mode=summary",), "[True, True, True]"),
    "--view=plain": (_nothing, {}, ("--view=plain",), "[True, True, True]"),
}


def in_row(row: str, cwd: Path, *words: str) -> tuple[Terminal, int, str]:
    """The terminal, the exit code, and everything written to the terminal or instead of it."""
    make, environ, options, _ = ROWS[row]
    streams = make(cwd)
    seen = Terminal(traceml(*options, *words), cwd=cwd, environ=terminal.environment(**environ), streams=streams)
    for fd in (given for given in streams.values() if given > 2):
        os.close(fd)
    code = seen.finish()
    out = cwd / "out"
    seen.look(0.2)
    return (
        seen,
        code,
        seen.raw.decode(errors="replace") + (out.read_bytes().decode(errors="replace") if out.exists() else ""),
    )


@pytest.mark.parametrize("row", ROWS)
def test_the_script_has_the_shells_own_descriptors_and_no_escape_is_written(row: str, tmp_path: Path) -> None:
    seen, code, text = in_row(row, tmp_path, SCRIPT, "see")

    assert code == 0
    assert f"tty {ROWS[row][3]}" in text
    assert "size 24x80" in text
    assert "\x1b" not in text
    assert "TraceML · " in seen.raw.decode()  # the card is on stderr, which is the terminal
    assert seen.modes == seen.modes_before
    assert not list((tmp_path / "logs").glob("*/rank-0.log"))


@pytest.mark.parametrize("row", [row for row in ROWS if "mode" not in row])
def test_there_mode_cli_says_where_the_run_is_in_lines_on_stderr(row: str, tmp_path: Path) -> None:
    seen, code, text = in_row(row, tmp_path, "--mode=cli", "--interval=0.3", TRAINING, "400", "end")

    assert code == 0
    assert len(LINE.findall(seen.raw.decode(errors="replace").replace("\r", ""))) >= 1
    assert "\x1b" not in text
    out = tmp_path / "out"
    assert not out.exists() or out.read_bytes() == running.RAW + b"ready\ntrained\n"


def test_a_run_without_any_terminal_writes_no_escape_and_its_bars_stay_its_own(tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    bare = subprocess.run([sys.executable, SCRIPT, "bars"], capture_output=True, check=True, cwd=tmp_path)
    result = running.run(tmp_path, SCRIPT, "bars")

    assert result.code == 0
    assert "\x1b" not in result.stderr.replace("\x1b[A", "")  # tqdm's own
    assert result.stdout == bare.stdout
    assert "outer: 100%" in result.stderr


def test_without_a_pty_the_script_runs_on_the_terminal_itself(tmp_path: Path) -> None:
    limits = tmp_path / "limits.py"
    limits.write_text(
        "import os, sys\n"
        "def none(): raise OSError(28, 'No space left on device')\n"
        "os.openpty = none\n"
        "from traceml.cli.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    seen = Terminal([sys.executable, str(limits), "run", SCRIPT, "see"], cwd=tmp_path)
    code = seen.finish()

    assert code == 0
    assert "size 24x80 tty [True, True, True]" in seen.everything
    assert "TraceML: no panel here (No space left on device); a line a minute instead." in seen.everything
    assert seen.modes == seen.modes_before
