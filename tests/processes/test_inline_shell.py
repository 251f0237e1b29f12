"""Runs scripts below a panel in a real shell's terminal: stopping, going on, resizing, detaching, hanging up."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import Iterator

import pytest

pytest.importorskip("pyte")

from tests.processes import running, tmux
from tests.processes.tmux import Tmux

pytestmark = [
    pytest.mark.process,
    pytest.mark.terminal,
    pytest.mark.skipif(not tmux.IS_THERE, reason="no tmux here; `make terminal` says how to get it"),
]
SCRIPT = str(running.SCRIPTS / "prompting.py")
RULE = "──"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Tmux]:
    found = Tmux(tmp_path)
    yield found
    found.close()


def run(*words: str) -> str:
    return shlex.join([*running.COMMAND, "run", *words])


def ticks(shell: Tmux) -> list[str]:
    return re.findall(r"tick \d+", shell.history())


def test_ctrl_z_gives_the_shell_a_whole_terminal_and_fg_goes_on(shell: Tmux, tmp_path: Path) -> None:
    shell.command(run(SCRIPT, "ticks", "60"))
    shell.wait_for_line("tick 5")
    shell.wait_for_line(RULE)
    shell.type("C-z")
    stopped = shell.wait_for_line("[1]+")
    assert RULE not in stopped
    assert shell.flag("scroll_region_lower") == "23"
    before = ticks(shell)
    shell.command("echo the shell is there")
    shell.wait_for_line("the shell is there")
    assert ticks(shell) == before
    shell.command("fg; echo code $?")
    shell.wait_for_line(RULE)
    shell.wait_for_line("done")
    shell.wait_for_line("code 0")

    assert ticks(shell) == [f"tick {number}" for number in range(60)]


def test_bg_goes_on_without_the_panel_and_fg_brings_it_back(shell: Tmux) -> None:
    shell.command(run(SCRIPT, "ticks", "100"))
    shell.wait_for_line(RULE)
    shell.wait_for_line("tick 5")
    shell.type("C-z")
    shell.wait_for_line("[1]+")
    num_before = len(ticks(shell))
    shell.command("bg")
    shell.wait_for(lambda _: len(ticks(shell)) > num_before + 5)
    assert RULE not in shell.screen()
    shell.command("fg")
    shell.wait_for_line(RULE)
    shell.wait_for_line("done")

    assert ticks(shell) == [f"tick {number}" for number in range(100)]


def test_ctrl_z_reaches_whoever_started_traceml_too(shell: Tmux, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(f"train:\n\t@{run(SCRIPT, 'ticks', '40')}\n")
    shell.command("make train; echo code $?")
    shell.wait_for_line("tick 5")
    shell.type("C-z")
    shell.wait_for_line("[1]+")
    shell.command("fg; echo code $?")
    shell.wait_for_line("done")

    shell.wait_for_line("code 0")


def test_resizing_loses_no_line_and_leaves_one_panel(shell: Tmux) -> None:
    shell.command(run(SCRIPT, "ticks", "600") + " || echo code $?")
    shell.wait_for_line("tick 5")
    for rows, columns in ((30, 100), (24, 60), (12, 40), (40, 120), (8, 80), (24, 80)):
        shell.resize(rows, columns)
        shell.wait_for(lambda text, rows=rows: (RULE in text) == (rows >= 9))  # type: ignore[misc]
        shell.wait_for(lambda text: sum(line.startswith(RULE) for line in text.splitlines()) <= 1)
    shell.type("C-c")
    shell.wait_for_line("KeyboardInterrupt")
    shell.wait_for(lambda text: text.rstrip().endswith("sh-prompt>"))

    seen = {int(tick.split()[1]) for tick in ticks(shell)}
    assert len(seen) >= max(seen) - 3  # a line that falls between a resize and its news may be overwritten
    assert shell.flag("scroll_region_lower") == "23"


def test_detaching_changes_nothing(shell: Tmux) -> None:
    shell.command(run(SCRIPT, "ticks", "40") + "; echo code $?")
    shell.wait_for_line("tick 5")
    shell._run("detach-client", "-s", "w")
    shell.wait_for_line("done")

    shell.wait_for_line("code 0")


def test_a_hang_up_ends_everything(shell: Tmux, tmp_path: Path) -> None:
    shell.command(run(SCRIPT, "sleep"))
    shell.wait_for_line("ready")
    shell.hang_up()

    assert running.nothing_runs(tmp_path)


def test_a_stopped_full_screen_program_comes_back_with_its_screen(shell: Tmux, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(f"line {number} of a file" for number in range(100)))
    shell.command(run(SCRIPT, "pager", str(text)))
    shell.wait_for_line("line 20 of")
    shell.type("C-z")
    shell.wait_for_line("[1]+")
    assert shell.flag("alternate_on") == "0"
    shell.command("fg")
    shell.wait_for_line("line 20 of")
    assert shell.flag("alternate_on") == "1"
    shell.type("q")
    shell.wait_for_line("back from less")


def test_vim_has_the_whole_screen(shell: Tmux, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a word\n")
    shell.command(run("--", "vim", "-u", "NONE", "-N", str(text)))
    shell.wait_for_line("a word")
    shell.wait_for(lambda text: text.count("\n~") >= 20)
    shell.type("i", "new ", "Escape", ":wq", "Enter")
    shell.wait_for(lambda text: "~" not in text)

    assert text.read_text() == "new a word\n"
    assert shell.flag("alternate_on") == "0"


def test_vim_scrolls_in_all_rows_shows_its_commands_output_and_leaves_the_earlier_lines(
    shell: Tmux, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("".join(f"row {number} of the file\n" for number in range(300)))
    shell.resize(30, 100)  # 19 above the panel, and vim's first region is of those
    shell.command(run("--", "sh", "-c", "seq -f 'line %g' 12; read go; vim -u NONE -N text; echo back; sleep 30"))
    shell.wait_for_line("line 12")
    shell.wait_for_line(RULE)
    shell.type("go", "Enter")
    rows = shell.wait_for(lambda text: "row 28 of" in text).splitlines()
    assert rows[:29] == [f"row {number} of the file" for number in range(29)]
    shell.type("C-e")  # a line up: scrolled, not drawn
    rows = shell.wait_for(lambda text: text.startswith("row 1 of") and "row 29 of" in text).splitlines()
    assert rows[:29] == [f"row {number} of the file" for number in range(1, 30)]
    shell.type("G")
    rows = shell.wait_for(lambda text: "row 299 of" in text).splitlines()
    assert rows[:29] == [f"row {number} of the file" for number in range(271, 300)]
    shell.type(":!echo said $((6 * 7))", "Enter")
    shell.wait_for_line("Press ENTER")
    time.sleep(1.5)  # as long as a person looks at it
    shell.wait_for_line("said 42")
    shell.type("Enter")
    shell.wait_for(lambda text: "row 299 of" in text and "row 271 of" in text)
    shell.type(":q", "Enter")
    shell.wait_for_line("back")
    shell.wait_for_line(RULE)

    lines = [line for line in shell.screen().splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(1, 13)]
    assert shell.flag("scroll_region_lower") == "18"
    shell.type("C-c")
    shell.wait_for(lambda text: text.rstrip().endswith("sh-prompt>"))
    assert shell.flag("scroll_region_lower") == "29"


def test_ctrl_c_stops_a_loop_of_the_shell_too(shell: Tmux) -> None:
    shell.command(f"for i in 1 2 3; do echo round $i; {run(SCRIPT, 'sleep')}; done; echo over")
    shell.wait_for_line("ready")
    shell.type("C-c")
    shell.wait_for_line("KeyboardInterrupt")
    shell.wait_for(lambda text: text.rstrip().endswith("sh-prompt>"))
    shell.command("echo alive")
    shell.wait_for_line("alive")

    assert "round 2" not in shell.history().splitlines()


def test_in_the_background_nothing_stands_between(shell: Tmux) -> None:
    shell.command(run(SCRIPT, "ticks", "20") + " &")
    shell.wait_for_line("tick 5")
    shell.command("echo the shell is there")
    shell.wait_for_line("the shell is there")
    shell.wait_for(lambda text: "done" in text)

    assert RULE not in shell.history()
    assert ticks(shell) == [f"tick {number}" for number in range(20)]


def test_what_was_typed_ahead_and_not_read_is_the_shells(shell: Tmux) -> None:
    if not tmux.MAY_TYPE_BACK:
        pytest.skip("this kernel lets nobody but root put keys back")
    shell.command(run(SCRIPT, "ticks", "20"))
    shell.wait_for_line("tick 5")
    shell.command("echo typed ahead: $((6 * 7))")

    shell.wait_for_line("typed ahead: 42")


def test_every_line_of_a_flood_is_in_the_scroll_back(shell: Tmux) -> None:
    shell.command(run(SCRIPT, "count", "20000") + "; echo code $?")
    shell.wait_for_line("code 0")

    lines = [line for line in shell.history().splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(20000)]
    assert RULE not in shell.history()
