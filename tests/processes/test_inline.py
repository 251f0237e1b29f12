"""Runs scripts below a panel as a person would: each row of the table, in a terminal drawn by pyte."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

pytest.importorskip("pyte")

from tests.processes import running, terminal
from tests.processes.terminal import Terminal, traceml

pytestmark = pytest.mark.process
SCRIPT = str(running.SCRIPTS / "prompting.py")
TRAINING = str(running.RING_TRAINING)
RULE = "──"


Start = Callable[..., Terminal]


@pytest.fixture
def start() -> Iterator[Start]:
    """Opens a terminal with `traceml run WORDS` in it; all are closed at the end."""
    opened: list[Terminal] = []

    def start(cwd: Path, *words: str, **more: Any) -> Terminal:
        opened.append(Terminal(traceml(*words), cwd=cwd, **more))
        return opened[-1]

    yield start
    for seen in opened:
        seen.close()


def assert_clean(seen: Terminal) -> None:
    """The terminal is as it was: modes, region, cursor, main screen; no row of the panel anywhere."""
    assert seen.modes == seen.modes_before
    assert seen.screen.margins is None or seen.screen.margins == (0, seen.screen.lines - 1)
    assert not seen.screen.cursor.hidden
    assert RULE not in "\n".join(row[:2] for row in [*seen.history, *seen.rows])


def log_of(cwd: Path) -> bytes:
    (folder,) = (cwd / "logs").iterdir()
    return (folder / "rank-0.log").read_bytes()


def test_the_panel_stands_below_the_output_and_gives_way_to_the_card(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, TRAINING, "700", "end")
    seen.wait_for("ready")
    assert seen.until(lambda: seen.rows[16].startswith(RULE))
    assert seen.rows[1] == "ready"
    code = seen.finish()

    assert code == 0
    assert "trained" in seen.rows
    assert "INPUT BOUND (critical)" in seen.everything
    assert_clean(seen)
    assert log_of(tmp_path) == running.RAW + b"ready\ntrained\n"


def test_every_line_is_in_the_scroll_back_and_no_row_of_the_panel(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "count", "3000")
    code = seen.finish()

    lines = [line for line in seen.everything.splitlines() if line.startswith("line ")]
    assert (code, lines) == (0, [f"line {number}" for number in range(3000)])
    assert_clean(seen)
    assert log_of(tmp_path).splitlines() == [line.encode() for line in lines]


def test_input_gets_what_is_typed_ahead_too(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "ask")
    seen.wait_for("name?")
    seen.type(b"Ada\n")
    seen.wait_for("hello Ada")
    seen.type(b"Grace\n")
    seen.wait_for("and Grace")

    assert seen.finish() == 0


def test_a_breakpoint_has_its_history(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "debug")
    seen.wait_for("(Pdb)")
    seen.type(b"n\n")
    seen.wait_for("-> say")
    seen.type(b"p answer + 1000\n")
    seen.wait_for("1041")
    seen.type(b"\x1b[A\x7f\x7f\x7f\x7f2000\n")  # cursor up, then another number
    seen.wait_for("2041")
    seen.type(b"c\n")
    seen.wait_for("the answer is 42")

    assert seen.finish() == 0


def test_a_password_is_not_shown_nor_kept(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "secret")
    seen.wait_for("password?")
    seen.type(b"swordfish\n")
    seen.wait_for("9 characters")

    assert seen.finish() == 0
    assert "swordfish" not in seen.everything
    assert b"swordfish" not in log_of(tmp_path)


def test_select_on_stdin_gets_its_key(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "wait_for_key")
    seen.look(0.5)
    seen.type(b"q\n")
    seen.wait_for("pressed q")

    assert seen.finish() == 0


def test_the_script_finds_a_terminal_of_the_rows_above_the_panel(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "see")
    code = seen.finish()

    assert code == 0
    assert "size 16x80 tty [True, True, True] COLUMNS None" in seen.everything
    assert "to /dev/tty" in seen.everything


@pytest.mark.parametrize(("rows", "columns", "left"), [(12, 40, 8), (50, 200, 39), (18, 59, 14)])
def test_the_panel_has_4_8_or_11_rows(start: Start, tmp_path: Path, rows: int, columns: int, left: int) -> None:
    seen = start(tmp_path, SCRIPT, "see", rows=rows, columns=columns)
    code = seen.finish()

    assert code == 0
    assert f"size {left}x{columns}" in seen.everything.replace("\n", "")


def test_a_resize_moves_the_panel_and_tells_the_script(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "resized")
    seen.wait_for("ready")
    seen.resize(40, 100)
    seen.wait_for("now 29")
    assert seen.until(lambda: seen.rows[29].startswith(RULE))
    seen.resize(8, 100)
    seen.wait_for("now 8")

    assert seen.finish() == 0


def test_progress_bars_are_drawn_by_the_terminal_itself(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    seen = start(tmp_path, SCRIPT, "bars")
    code = seen.finish()

    shown = [row for row in [*seen.history, *seen.rows] if row]
    assert code == 0
    assert [row[:14] for row in shown[:3]] == ["a line between"] * 3
    assert shown[3].startswith("outer: 100%")
    assert_clean(seen)


def test_less_has_the_whole_screen_and_the_panel_comes_back(start: Start, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(f"line {number} of a file" for number in range(100)))
    seen = start(tmp_path, SCRIPT, "pager", str(text))
    seen.wait_for("line 22 of a file")  # 23 rows of 24, not 15 of 16
    seen.type(b"q")
    seen.wait_for("back from less")

    assert seen.finish() == 0
    assert seen.raw.index(b"\x1b[r") < seen.raw.index(b"\x1b[?1049h")
    assert seen.raw.index(b"\x1b[?1049l") < seen.raw.rindex(b"\x1b[1;16r")
    assert seen.modes == seen.modes_before


def test_every_mode_is_put_back_and_an_unfinished_line_is_ended(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "messy")
    code = seen.finish()

    assert code == 0
    assert_clean(seen)
    rows = seen.rows
    assert "red and unfinished" in rows
    for undone in (b"\x1b[?1000l", b"\x1b[?1006l", b"\x1b[?2004l", b"\x1b[?25h"):
        assert seen.raw.rindex(undone) > seen.raw.index(b"red and unfinished")
    assert seen.screen.cursor.attrs.fg == "default"


def test_the_other_screen_is_left_for_the_script(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "hidden")
    code = seen.finish()

    assert code == 0
    assert b"\x1b[?1049l" in seen.raw
    assert seen.raw.index(b"\x1b[?1049l") < seen.raw.index(b"TraceML")


def test_a_full_line_goes_on_where_it_was(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "full_line")
    code = seen.finish()

    assert code == 0
    assert seen.everything.splitlines()[:2] == ["x" * 80, "y"]


def test_ctrl_c_that_nobody_handles_ends_both_by_the_signal(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "sleep")
    seen.wait_for("ready")
    seen.type(b"\x03")
    code = seen.finish()

    assert code == 130
    assert seen.process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in seen.everything
    assert_clean(seen)


def test_ctrl_c_that_the_script_handles_is_its_own(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "saves")
    seen.wait_for("ready")
    seen.type(b"\x03")
    code = seen.finish()

    assert code == 7
    assert "saving" in seen.everything


def test_ctrl_backslash_quits(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "sleep")
    seen.wait_for("ready")
    seen.type(b"\x1c")

    assert seen.finish() == 131
    assert_clean(seen)


def test_ctrl_d_ends_the_input(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "ask")
    seen.wait_for("name?")
    seen.type(b"\x04")

    assert seen.finish() == 1
    assert "EOFError" in seen.everything


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 138)])
def test_a_signal_to_traceml_is_the_scripts(start: Start, tmp_path: Path, signum: int, code: int) -> None:
    seen = start(tmp_path, SCRIPT, "sleep")
    seen.wait_for("ready")
    os.kill(seen.process.pid, signum)

    assert seen.finish() == code
    assert_clean(seen)
    assert running.nothing_runs(tmp_path)


def test_a_closed_terminal_ends_script_and_traceml(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "sleep")
    seen.wait_for("ready")
    seen.close()

    assert running.until(lambda: seen.process.poll() is not None)
    assert running.nothing_runs(tmp_path)


def test_the_killed_view_ends_nothing_and_the_output_is_kept(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "ticks", "60")
    seen.wait_for("tick 3")
    assert running.until(lambda: running.collectors_of(tmp_path))
    seen.look(0.3)
    assert seen.until(lambda: seen.rows[16].startswith(RULE))
    seen.process.kill()
    seen.process.wait()
    seen.look(0.5)
    assert seen.screen.margins is None  # the shell scrolls over the whole screen
    assert not any(row.startswith(RULE) for row in seen.rows)

    assert running.until(lambda: b"done" in log_of(tmp_path))
    ticks = [line for line in log_of(tmp_path).splitlines() if line.startswith(b"tick")]
    assert ticks[-1] == b"tick 59"
    assert len(ticks) >= 58  # what the killed one had read and not kept yet
    assert running.nothing_runs(tmp_path)


def test_a_training_whose_view_was_killed_still_has_its_summary(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, TRAINING, "1500", "end")
    seen.wait_for("ready")
    assert running.until(lambda: running.collectors_of(tmp_path))
    seen.look(0.5)
    seen.process.kill()
    seen.process.wait()
    (folder,) = (tmp_path / "logs").iterdir()

    assert running.until((folder / "final_summary.json").exists)
    found = running.Result(0, b"", "", folder)
    assert found.end[3] == 1500
    assert b"trained" in log_of(tmp_path)


def test_a_daemon_that_keeps_the_terminal_is_not_waited_for(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, SCRIPT, "unclosed")
    began = time.monotonic()
    code = seen.finish()

    assert code == 0
    assert "the script is over" in seen.everything
    assert time.monotonic() - began < 5


def test_a_command_that_is_none_leaves_the_terminal_alone(start: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no interpreter\n")
    broken.chmod(0o755)
    seen = start(tmp_path, "--", str(broken))
    code = seen.finish()

    assert code == 126
    assert seen.modes == seen.modes_before
    assert b"\x1b" not in seen.raw
    assert not list((tmp_path / "logs").glob("*"))


def test_errors_that_go_elsewhere_still_go_there(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "errors").open("wb") as errors:
        seen = start(tmp_path, TRAINING, "40", "exception", streams={2: errors})
        code = seen.finish()

    text = (tmp_path / "errors").read_text()
    assert code == 1
    assert "ValueError: the loss is nan" in text
    assert "TraceML · " in text  # the card, as ever on stderr
    assert "ValueError" not in seen.everything
    assert_clean(seen)


def test_no_colour_means_none_in_the_panel_and_the_scripts_own_untouched(start: Start, tmp_path: Path) -> None:
    seen = start(tmp_path, TRAINING, "700", "end", environ=terminal.environment(NO_COLOR="1"))
    seen.finish()

    assert b";3" not in seen.raw
    assert not [code for code in (b"[3%dm" % ink for ink in range(8)) if code in seen.raw]
