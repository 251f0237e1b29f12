"""Tests how the launcher asks its collector, over real pipes: in pieces, unanswered, dead."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from traceml.launch import collector
from traceml.launch.collector import Answer, Keeper
from traceml.schema.panel import PanelRequest

REQUEST = PanelRequest(80, 8)
#: Answers each line it hears with its argument, and says goodbye to an empty one.
PARROT = "import sys\nfor line in sys.stdin: print(eval(sys.argv[1])(line), end='', flush=True)"
MUTE = "import time; time.sleep(60)"


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes a keeper whose collector is a program given here."""
    started: list[subprocess.Popen[bytes]] = []

    def keep(*program: str) -> Keeper:
        def start(_folder: Path, *, pipe: bool, held: tuple[int, ...]) -> subprocess.Popen[bytes]:
            assert (pipe, held) == (True, ())
            command = [sys.executable, "-c", *program]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            return started[-1]

        monkeypatch.setattr(collector, "start_collector", start)
        keeper = Keeper(tmp_path)
        keeper.start()
        return keeper

    yield keep
    for process in started:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()


def hear(keeper: Keeper, is_enough: Callable[[Answer], bool]) -> Answer:
    """What comes until it is enough, as one answer."""
    heard = Answer()
    while not is_enough(heard):
        assert select.select(keeper.fds, [], [], 20)[0]
        new = keeper.answer()
        heard = Answer(heard.text + new.text, new.panel or heard.panel)
    return heard


def test_plain_lines_and_a_panel_come_apart_though_they_share_a_pipe(keep: Any) -> None:
    said = 'TraceML: step 3\n{"panel": ["a", "b"]}\nTraceML: step 4\n'
    keeper = keep(PARROT, f"lambda line: {said!r}")

    keeper.ask_panel(REQUEST)

    assert hear(keeper, lambda heard: "4" in heard.text) == Answer("TraceML: step 3\nTraceML: step 4\n", ("a", "b"))


def test_a_panel_larger_than_a_pipe_is_put_together(keep: Any) -> None:
    keeper = keep(PARROT, "lambda line: '{\"panel\": [\"' + 'x' * 200000 + '\"]}\\n'")

    keeper.ask_panel(REQUEST)

    assert hear(keeper, lambda heard: heard.panel is not None).panel == ("x" * 200000,)


def test_the_collector_hears_the_room_and_the_powers_of_the_terminal(keep: Any) -> None:
    keeper = keep(PARROT, "lambda line: line")

    keeper.ask_panel(PanelRequest(120, 11, "256", "light", ascii=True))

    assert json.loads(hear(keeper, lambda heard: bool(heard.text)).text) == {
        "panel": {"columns": 120, "rows": 11, "colours": "256", "background": "light", "ascii": True}
    }


def test_a_collector_that_does_not_answer_is_not_asked_on(keep: Any) -> None:
    keeper = keep(MUTE)

    asked = [keeper.ask_panel(REQUEST) for _ in range(10_000)]  # more than a pipe holds

    assert asked.count(True) == 2


def test_an_answer_allows_the_next_questions(keep: Any) -> None:
    keeper = keep(PARROT, 'lambda line: \'{"panel": ["a"]}\\n\'')

    for _ in range(5):
        assert keeper.ask_panel(REQUEST)
        hear(keeper, lambda heard: heard.panel is not None)


def test_nobody_is_asked_when_the_collector_has_died_and_its_last_words_are_dropped(keep: Any) -> None:
    keeper = keep("print('{\"panel\": [', end='')")

    while keeper.fds:
        assert keeper.answer() == Answer()

    assert not keeper.ask_panel(REQUEST)
