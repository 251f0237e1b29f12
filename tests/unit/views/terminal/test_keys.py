"""Presses every key that the screen names, on a real run folder, and holds each to an effect that is seen."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from tests.unit.views.terminal.scenes import run_folder
from tests.unit.views.terminal.test_app import LOG, Person
from traceml.report.contract import Report
from traceml.report.run import Run, Window, open_run
from traceml.views.terminal.app import Canvas, RunApp
from traceml.views.terminal.keys import KEYS, MORE
from traceml.views.terminal.palette import Palette

#: What to press before, and the key: each changes what is seen.
PRESSES = (
    ((), "q"), ((), "ctrl+c"), ((), "ctrl+q"), ((), "space"), ((), "left"), (("left", "left"), "right"), ((), "r"),
    ((), "l"), ((), "s"), ((), "o"), ((), "question_mark"), ((), "h"), ((), "f1"), ((), "w"), (("s",), "escape"),
    ((), "up"), ((), "k"), (("up",), "down"), (("up",), "j"), ((), "pageup"), (("pageup",), "pagedown"), ((), "home"),
    (("home",), "end"), ((), "tab"), (("o",), "tab"),
)  # fmt: skip
SIGNS = {"←→": ("left", "right"), "↑↓": ("up", "down"), "?": ("question_mark",), "esc": ("escape",)}


class Layered(Run):
    """A run that knows its layers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, open_run(folder)._manifest)

    def report(self, window: Optional[Window] = None) -> Report:
        return replace(super().report(window), layers={"encoder.0": {"ms": 3.1}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = run_folder(tmp_path_factory.mktemp("keys"), num_ranks=2, log=LOG)
    (path / "rank-1.log").write_bytes(LOG.replace(b"step", b"other"))
    return path


@pytest.mark.parametrize(("before", "key"), PRESSES)
def test_a_key_that_is_named_does_something(folder: Path, before: tuple[str, ...], key: str) -> None:
    async def act() -> None:
        app = RunApp(Layered(folder), palette=Palette())
        async with app.run_test(size=(140, 30)) as pilot:
            person = Person(app, pilot)
            await person.until("INPUT BOUND", "step 199 loss", "l layers", "steps 101 to 400")
            for other in before:
                await person.press(other)
                await asyncio.sleep(0.3)
            seen = person.rows
            await person.press(key)
            for _ in range(60):
                if not app.is_running or app.query_one(Canvas) is None or person.rows != seen:
                    return
                await asyncio.sleep(0.05)
        raise AssertionError(f"{key} does nothing")

    asyncio.run(act())


def test_every_key_that_is_named_or_bound_is_pressed_above() -> None:
    pressed = {key for _, key in PRESSES}
    named = {key for found in (*KEYS, *MORE) for key in SIGNS.get(found.sign, (found.sign,))}
    bound = {key for binding in RunApp.BINDINGS for key in binding.key.split(",")}  # type: ignore[union-attr]

    assert named <= pressed
    assert bound == pressed


def test_tab_reads_the_other_ranks_output_and_then_the_first_ones_again(folder: Path) -> None:
    async def act() -> None:
        app = RunApp(Layered(folder), palette=Palette())
        async with app.run_test(size=(140, 30)) as pilot:
            person = Person(app, pilot)
            await person.until("output of rank 0", "step 199 loss", "tab next rank")
            await person.press("tab")
            await person.until("output of rank 1", "other 199 loss")
            await person.press("tab")
            await person.until("output of rank 0", "step 199 loss")

    asyncio.run(act())


def test_the_bottom_names_no_other_rank_where_there_is_one_output(tmp_path: Path) -> None:
    async def act() -> None:
        app = RunApp(open_run(run_folder(tmp_path, num_ranks=2, log=LOG)), palette=Palette())
        async with app.run_test(size=(140, 30)) as pilot:
            person = Person(app, pilot)
            await person.until("step 199 loss", "q close")
            await asyncio.sleep(1.2)
            assert "next rank" not in person.read

    asyncio.run(act())
