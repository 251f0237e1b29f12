"""Runs scripts below a panel while something of ours stands still, fails, or cannot be stopped: the script goes on."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyte")

from tests.processes import running
from tests.processes.terminal import Terminal, traceml

pytestmark = [pytest.mark.process, pytest.mark.terminal]
SCRIPT = str(running.SCRIPTS / "prompting.py")
TRAINING = str(running.RING_TRAINING)


def test_a_collector_that_stands_still_holds_nothing_up_and_the_panel_says_so(tmp_path: Path) -> None:
    seen = Terminal(traceml(SCRIPT, "ticks", "150"), cwd=tmp_path)
    seen.wait_for("tick 3")
    assert running.until(lambda: running.collectors_of(tmp_path))
    (collector,) = running.collectors_of(tmp_path)
    collector.suspend()
    seen.wait_for("no word from the collector for 5 s")
    seen.wait_for("tick 130")
    collector.resume()

    assert seen.finish() == 0
    assert "tick 149" in seen.everything


def test_a_panel_that_fails_is_given_up_and_the_output_goes_on(tmp_path: Path) -> None:
    failing = tmp_path / "failing.py"
    failing.write_text(
        "import sys\n"
        "from traceml.launch.terminal.panel import Panel\n"
        "Panel.rows = property(lambda self: 1 / 0)\n"
        "from traceml.cli.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    seen = Terminal([sys.executable, str(failing), "run", SCRIPT, "ticks", "20"], cwd=tmp_path)
    code = seen.finish()

    assert code == 0
    assert [row for row in seen.everything.splitlines() if row.startswith("tick")] == [f"tick {n}" for n in range(20)]
    assert "TraceML: the panel was given up (ZeroDivisionError: division by zero)." in seen.everything
    assert seen.modes == seen.modes_before
    assert seen.screen.margins is None


def test_the_panel_moves_colours_and_erases_and_nothing_else(tmp_path: Path) -> None:
    seen = Terminal(traceml("--run-name", "good", TRAINING, "700", "end"), cwd=tmp_path)
    seen.wait_for("ready")
    assert seen.until(lambda: "step " in seen.rows[16])
    seen.finish()

    drawn = b"".join(re.findall(rb"\x1b\[\?2026h(.*?)\x1b\[\?2026l", seen.raw, re.DOTALL))
    assert {found[-1:] for found in re.findall(rb"\x1b\[[0-?]*[@-~]", drawn)} <= {b"m", b"H", b"K", b"h", b"l"}


def test_ctrl_z_where_nobody_could_continue_us_stops_nobody(tmp_path: Path) -> None:
    seen = Terminal(traceml(SCRIPT, "ticks", "30"), cwd=tmp_path)  # no shell: its group is an orphan
    seen.wait_for("tick 5")
    seen.type(b"\x1a")
    code = seen.finish()

    assert code == 0
    assert [row for row in seen.everything.splitlines() if row.startswith("tick")] == [f"tick {n}" for n in range(30)]


def test_a_view_that_was_stopped_from_outside_goes_on_where_it_was(tmp_path: Path) -> None:
    seen = Terminal(traceml(SCRIPT, "ticks", "60"), cwd=tmp_path)
    seen.wait_for("tick 5")
    seen.process.send_signal(signal.SIGSTOP)
    seen.look(0.7)
    seen.process.send_signal(signal.SIGCONT)
    code = seen.finish()

    assert code == 0
    assert [row for row in seen.everything.splitlines() if row.startswith("tick")] == [f"tick {n}" for n in range(60)]


def test_a_run_folder_that_takes_no_log_is_told_and_the_script_runs(tmp_path: Path) -> None:
    failing = tmp_path / "failing.py"
    failing.write_text(
        "import sys\n"
        "from traceml.launch.terminal import inline\n"
        "def refuse(path): raise OSError(28, 'No space left on device')\n"
        "inline.Log = refuse\n"
        "from traceml.cli.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    seen = Terminal([sys.executable, str(failing), "run", SCRIPT, "ticks", "5"], cwd=tmp_path, columns=200)
    code = seen.finish()

    assert code == 0
    assert "tick 4" in seen.everything
    assert "TraceML: no copy of the output in" in seen.everything


def test_a_window_that_is_resized_behind_the_end_still_shows_the_card(tmp_path: Path) -> None:
    seen = Terminal(traceml(SCRIPT, "ticks", "20"), cwd=tmp_path)
    assert running.until(lambda: running.collectors_of(tmp_path))
    (collector,) = running.collectors_of(tmp_path)
    seen.wait_for("tick 10")
    collector.suspend()
    assert seen.until(lambda: b"[r" in seen.raw)  # the region goes: the script has ended
    seen.process.send_signal(signal.SIGWINCH)
    seen.look(0.3)
    collector.resume()

    assert seen.finish() == 0
    assert "TraceML · " in seen.everything
    assert "no summary yet" not in seen.everything
