"""Watches runs full screen as a person would: live, after the end, killed, closed, in tmux and in a drawn terminal."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterator

import psutil
import pytest

pytest.importorskip("pyte")

from tests.processes import running, terminal, tmux
from tests.processes.terminal import Terminal, traceml
from tests.unit.views.terminal.scenes import run_folder

pytestmark = [pytest.mark.process, pytest.mark.terminal]  # `make terminal`: too long for every change
EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"
TRAINING = str(running.RING_TRAINING)
PRINTING = """
import sys, time
for n in range(60):
    print("line", n, flush=True)
    time.sleep(0.05)
sys.exit(7)
"""
QUIET = ("--mode=summary", "--save-output", "--run-name", "live")
KEYS = "q close"
Attach = Callable[..., Terminal]


@pytest.fixture
def attach() -> Iterator[Attach]:
    """Opens a terminal with `traceml attach WORDS` in it; all are closed at the end, and nobody is left."""
    opened: list[Terminal] = []

    def attach(cwd: Path, *words: str, **more: Any) -> Terminal:
        opened.append(Terminal([*running.COMMAND, "attach", *words], cwd=cwd, **more))
        return opened[-1]

    yield attach
    for seen in opened:
        if seen.process.poll() is None:
            seen.process.kill()
            seen.process.wait()
        seen.close()


def told(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command says that has no terminal."""
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(list(words), cwd=cwd, env=running.environment(), check=False, **streams)


def read(seen: Terminal) -> str:
    return " ".join(" ".join(seen.rows).split())


def wait(seen: Terminal, *texts: str) -> None:
    assert seen.until(lambda: all(text in read(seen) for text in texts)), "\n".join(seen.rows)


@pytest.mark.terminal
@pytest.mark.skipif(not tmux.IS_THERE, reason="no tmux here")
def test_a_training_is_watched_in_tmux_and_the_viewer_comes_and_goes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    training = running.start(tmp_path, str(EXAMPLE), "--steps", "90", options=QUIET)
    window = tmux.Tmux(tmp_path, rows=24, columns=80)
    line = shlex.join([*running.COMMAND, "attach"])
    try:
        window.command(line)
        window.wait_for(lambda text: "INPUT BOUND" in text and "step   25  loss" in text, patience_s=60)
        window.type("C-c")  # closes the view, not the training
        window.wait_for(lambda text: text.rstrip().endswith("sh-prompt>"))
        assert training.poll() is None
        window.command(line)
        window.wait_for(lambda text: KEYS in text and "INPUT BOUND" in text)
        viewers = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == shlex.split(line)]
        assert len(viewers) == 1
        viewers[0].kill()
        window.command("reset")
        result = running.finish(training, tmp_path / "logs")
        assert result.code == 0
        window.command(line)
        shown = window.wait_for(lambda text: "completed · 90 steps" in text and "INPUT BOUND" in text)
        assert result.summary["verdict"]["summary"] in " ".join(shown.split())
        assert "step   75  loss" in shown
        window.type("q")
        window.wait_for(lambda text: text.rstrip().endswith("sh-prompt>"))
        assert window.flag("alternate_on") == "0"
    finally:
        window.close()
        if training.poll() is None:
            os.killpg(training.pid, signal.SIGKILL)
            training.wait()
    assert running.nothing_runs(tmp_path)


def test_a_run_that_is_killed_whole_is_shown_to_its_last_step(attach: Attach, tmp_path: Path) -> None:
    training = running.start(tmp_path, TRAINING, "100000", "end", options=QUIET)
    seen = attach(tmp_path)
    wait(seen, "INPUT BOUND", KEYS)
    others = [*running.collectors_of(tmp_path), *psutil.Process(training.pid).children(recursive=True)]
    training.kill()  # first, so that it starts no other collector
    for process in others:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    training.communicate()

    wait(seen, "ended unseen", "INPUT BOUND")
    seen.type(b"q")
    assert seen.finish() == 0
    assert seen.modes == seen.modes_before


def test_a_closed_window_ends_the_view_and_nothing_else(attach: Attach, tmp_path: Path) -> None:
    training = running.start(tmp_path, TRAINING, "1500", "end", options=QUIET)
    seen = attach(tmp_path)
    wait(seen, KEYS)

    os.kill(seen.process.pid, signal.SIGHUP)

    assert seen.until(lambda: seen.process.poll() is not None, patience_s=10)
    assert training.poll() is None
    assert running.finish(training, tmp_path / "logs").end == ("completed", "end", 0, 1500)


def test_no_run_a_damaged_one_and_no_terminal_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "logs" / "one")
    asked = (["attach"], ["attach", "onne"], ["attach", str(folder)])

    done = [told(cwd, *running.COMMAND, *words) for words, cwd in zip(asked, (folder, tmp_path, tmp_path))]

    assert [one.returncode for one in done] == [2, 2, 2]
    assert [len(one.stderr.splitlines()) for one in done] == [1, 1, 1]
    assert "No runs in 'logs'" in done[0].stderr
    assert "did you mean 'one'?" in done[1].stderr
    assert f"`traceml view {folder}`" in done[2].stderr
    assert [one.stdout for one in done] == ["", "", ""]


def test_nothing_of_a_hostile_output_or_name_reaches_the_terminal(attach: Attach, tmp_path: Path) -> None:
    hostile = b"\x1b]52;c;b3duZWQ=\x07\x1b]0;owned\x07\x1bc\x1b[?1003h\x1b[6n\x1bP+q6f776e6564\x1b\\"
    run_folder(
        tmp_path / "logs" / "one", name=f"ev\x1b]0;owned\x07il{chr(0x202E)}", log=b"before " + hostile + b"after\n"
    )
    seen = attach(tmp_path)

    wait(seen, "before after", KEYS)
    seen.type(b"q")
    assert seen.finish() == 0
    for payload in (b"b3duZWQ", b"\x1bc", b"\x1b[?1003h", b"\x1b[6n", b"6f776e6564", chr(0x202E).encode()):
        assert payload not in seen.raw, payload
    assert b"\x1b]0;" not in seen.raw
    assert seen.modes == seen.modes_before


def test_it_draws_on_the_terminal_wherever_stderr_goes(attach: Attach, tmp_path: Path) -> None:
    run_folder(tmp_path / "logs" / "one")
    with (tmp_path / "errors").open("wb") as errors:
        seen = attach(tmp_path, streams={2: errors})
        wait(seen, "INPUT BOUND", KEYS)
        seen.type(b"q")

        assert seen.finish() == 0
    assert (tmp_path / "errors").read_bytes() == b""


def test_it_needs_neither_colours_nor_blocks(attach: Attach, tmp_path: Path) -> None:
    run_folder(tmp_path / "logs" / "one")
    plain = attach(tmp_path, environ=terminal.environment(NO_COLOR="1"))
    ascii_only = attach(tmp_path, environ=terminal.environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"))

    wait(plain, "INPUT BOUND", KEYS)
    wait(ascii_only, "INPUT BOUND", KEYS)
    for seen in (plain, ascii_only):
        seen.type(b"q")
        assert seen.finish() == 0
    assert b"\x1b[38;" not in plain.raw
    assert ascii_only.raw.isascii()


def test_the_newest_running_run_comes_first_else_the_newest(attach: Attach, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    run_folder(logs / "old", name="old")
    manifest = json.loads((run_folder(logs / "newest", name="newest") / "manifest.json").read_text())
    (logs / "newest" / "manifest.json").write_text(json.dumps({**manifest, "created_at": 4e9}))
    training = running.start(tmp_path, TRAINING, "1500", "end", options=QUIET)
    assert running.until((logs / "live" / "manifest.json").exists)
    live = attach(tmp_path)
    wait(live, "live · ", KEYS)
    live.type(b"q")
    assert live.finish() == 0
    training.communicate()

    newest = attach(tmp_path)

    wait(newest, "newest · ", KEYS)


def test_a_terminal_that_terminfo_does_not_know_is_none(attach: Attach, tmp_path: Path) -> None:
    run_folder(tmp_path / "logs" / "one")
    seen = attach(tmp_path, environ=terminal.environment(TERM="nonsense"))

    assert seen.finish() == 2
    assert "`traceml view logs/one` prints the card." in read(seen)
    assert b"\x1b" not in seen.raw


HOSTILE = """
from pathlib import Path
Path(__file__).with_suffix(".executed").write_text(__name__)
raise SystemExit("the wrong module")
"""
SHADOWED = ("tty", "rich", "json", "textual", "pygments", "sqlite3", "curses")


@pytest.mark.parametrize("command", [running.COMMAND, (sys.executable, "-m", "traceml")])
def test_no_module_beside_the_script_is_executed_by_the_full_view_attach_or_the_collector(
    attach: Attach, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    lines = PRINTING.replace(
        "import sys, time", "import sys\ndel sys.path[0]\nimport time"
    )  # itself it shall not meet them
    (tmp_path / "script.py").write_text(lines)
    full = Terminal([*command, "run", "--view=full", "script.py"], cwd=tmp_path)
    assert full.until(lambda: KEYS in read(full)), full.everything
    assert full.finish() == 7
    attached = Terminal([*command, "attach"], cwd=tmp_path)
    assert attached.until(lambda: KEYS in read(attached)), attached.everything
    attached.type(b"q")

    assert attached.finish() == 0
    assert list(tmp_path.glob("*.executed")) == []
    assert "failed with exit code 7" in full.everything


@pytest.mark.terminal
@pytest.mark.skipif(not tmux.IS_THERE, reason="no tmux here")
def test_the_full_view_covers_the_inline_one_and_gives_way_to_it(tmp_path: Path) -> None:
    window = tmux.Tmux(tmp_path)
    try:
        window.command(shlex.join([*traceml("--view=full", "--run-name", "full", TRAINING, "5000", "end")]))
        shown = window.wait_for(lambda text: "INPUT BOUND" in text and KEYS in text)
        assert "ready" in shown  # what the script printed, from the run's log
        window.type("q")
        window.wait_for(lambda text: "── full · step" in text and "INPUT BOUND" in text and KEYS not in text)

        window.wait_for(lambda text: text.rstrip().endswith("sh-prompt>"), patience_s=40)
        assert "completed" in window.history()
        assert "final_summary.json" in window.history()
        assert "ready" in window.history().splitlines()
    finally:
        window.close()


@pytest.mark.terminal
@pytest.mark.skipif(not tmux.IS_THERE, reason="no tmux here")
def test_the_full_view_closes_with_the_script_and_leaves_output_card_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PRINTING)
    window = tmux.Tmux(tmp_path)
    try:
        window.command(shlex.join(traceml("--view=full", "script.py")) + "; echo code $?")
        window.wait_for(lambda text: KEYS in text)

        window.wait_for_line("code 7")
        lines = [row for row in window.history().splitlines() if row.startswith("line ")]
        assert lines == [f"line {n}" for n in range(60)]
        assert "failed with exit code 7" in window.history()
        assert (window.flag("alternate_on"), window.flag("cursor_flag")) == ("0", "1")
    finally:
        window.close()


def test_neither_import_nor_another_command_brings_textual() -> None:
    rooms = "traceml.cli.view, traceml.cli.attach, traceml.cli.run, traceml.cli.node, traceml.report.run"
    look = f"import sys, {rooms}; print('textual' in sys.modules)"

    assert told(Path.cwd(), sys.executable, "-c", look).stdout.strip() == "False"


def test_tab_shows_the_other_ranks_output_in_a_real_terminal(tmp_path: Path, attach: Attach) -> None:
    folder = run_folder(tmp_path / "logs" / "two", num_ranks=2, log=b"said by the first\r\n")
    (folder / "rank-1.log").write_bytes(b"said by the second\r\n")

    seen = attach(tmp_path, str(folder), rows=40, columns=140)
    seen.wait_for("said by the first")
    seen.wait_for("tab next rank")
    seen.type(b"\t")
    seen.wait_for("said by the second")
    seen.type(b"\t")

    seen.wait_for("output of rank 0")
