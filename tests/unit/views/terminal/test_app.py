"""Drives the full screen by its keys, headless, on real run folders: what it shows, holds, and lets nobody do."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Awaitable, Callable, Optional

import pytest

from tests.unit.views.terminal.scenes import SIZES, run_folder
from traceml.report.contract import Report
from traceml.report.run import Run, Window, open_run
from traceml.views.terminal import scene as scenes
from traceml.views.terminal.app import Canvas, RunApp
from traceml.views.terminal.palette import Palette

TRUE = Palette("true")
LOG = b"".join(b"\x1b[32mINFO\x1b[0m step %d loss=%.4f\r\n" % (n, 1 / (n + 1)) for n in range(200))
Script = Callable[["Person"], Awaitable[None]]


class StillRunning(Run):
    """A run that goes on, whatever its folder says; it answers with the report that it had at first."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, open_run(folder)._manifest)

    @property
    def is_running(self) -> bool:
        return True

    def report(self, window: Optional[Window] = None) -> Report:
        found = super().report(window)
        return replace(found, run=replace(found.run, status="running", total_steps=5000, data_age_s=0.0))


class Person:
    """Somebody in front of the screen."""

    def __init__(self, app: RunApp, pilot: object) -> None:
        self.app, self._pilot = app, pilot

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)  # type: ignore[attr-defined]  # Textual's, of a type of its own
        await self._pilot.pause()  # type: ignore[attr-defined]

    async def until(self, *texts: str, is_there: bool = True) -> None:
        """Until the texts stand there, or are gone."""
        for _ in range(200):
            if all((text in self.read) is is_there for text in texts):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{texts} in:\n" + "\n".join(self.rows))

    @property
    def rows(self) -> list[str]:
        return [strip.text for strip in self.app.query_one(Canvas).strips]

    @property
    def read(self) -> str:
        return " ".join(" ".join(self.rows).split())


def watched(folder: Path, script: Script, *, size: tuple[int, int] = (80, 24), palette: Palette = TRUE) -> None:
    """Opens a run and does what the script says."""

    async def act() -> None:
        app = RunApp(open_run(folder), palette=palette)
        async with app.run_test(size=size) as pilot:
            person = Person(app, pilot)
            await person.until("steps", "q close")
            await script(person)

    asyncio.run(act())


@pytest.mark.parametrize("size", SIZES)
def test_every_row_is_as_wide_as_the_terminal_and_none_wraps(tmp_path: Path, size: tuple[int, int]) -> None:
    async def look(person: Person) -> None:
        await person.until("INPUT BOUND", "step 199 loss")
        for key in ("s", "o", "question_mark", "escape"):
            strips = person.app.query_one(Canvas).strips
            assert len(strips) == size[1]
            assert {strip.cell_length for strip in strips} == {size[0]}
            await person.press(key)

    watched(run_folder(tmp_path, log=LOG), look, size=size)


def test_keys_open_pages_and_the_same_key_or_escape_closes_them(tmp_path: Path) -> None:
    async def look(person: Person) -> None:
        await person.until("INPUT BOUND", "output · 200 lines")
        await person.press("question_mark")
        await person.until("closes this view; the training goes on")
        await person.press("s")
        await person.until("── system")
        await person.press("s")
        await person.until("INPUT BOUND")
        await person.press("o")
        await person.until("INPUT BOUND", is_there=False)
        assert "step 199 loss" in person.read
        await person.press("escape")
        await person.until("INPUT BOUND")
        await person.press("r", "l")  # one rank, no layers: nothing happens
        assert "INPUT BOUND" in person.read

    watched(run_folder(tmp_path, log=LOG), look)


def test_ranks_have_a_page_when_there_are_several(tmp_path: Path) -> None:
    async def look(person: Person) -> None:
        await person.until("r ranks")
        await person.press("r")
        await person.until("── ranks: mean ms a step", "rank 2")

    watched(run_folder(tmp_path, num_ranks=3), look, size=(120, 40))


def test_the_output_scrolls_and_stays_where_it_was_put(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, log=LOG)

    async def look(person: Person) -> None:
        await person.until("step 199 loss")
        await person.press("up", "up", "up")
        await person.until("3 lines further down")
        assert "step 199 loss" not in person.read
        with (folder / "rank-0.log").open("ab") as log:
            log.write(b"one more\r\n")
        await person.until("4 lines further down")
        await person.press("home")
        await person.until("step 0 loss")
        await person.press("pagedown", "end")
        await person.until("one more")

    watched(folder, look)


def test_a_progress_bar_and_colours_are_right(tmp_path: Path) -> None:
    log = b"".join(b"\repoch 0: %3d%%|%-10s|" % (n, b"#" * (n // 10)) for n in range(101)) + b"\x1b[31m red\x1b[0m"

    async def look(person: Person) -> None:
        await person.until("epoch 0: 100%|##########| red")
        assert person.read.count("epoch 0") == 1
        styles = [
            segment.style for strip in person.app.query_one(Canvas).strips for segment in strip if "red" in segment.text
        ]
        assert [style.color.number for style in styles if style and style.color] == [1]

    watched(run_folder(tmp_path, log=log), look)


def test_arrows_step_through_the_run_each_stretch_with_its_own_verdict(tmp_path: Path) -> None:
    async def look(person: Person) -> None:
        await person.until("INPUT BOUND")
        await person.press("left")
        await person.until("only steps 361 to 400", "COMPUTE BOUND")
        for _ in range(9):
            await person.press("left")
        await person.until("only steps 1 to 40", "INPUT BOUND")
        await person.press("left")  # there is nothing before
        await person.until("only steps 1 to 40")
        await person.press("right")
        await person.until("only steps 41 to 80")
        await person.press("escape")
        await person.until("only steps", is_there=False)

    watched(run_folder(tmp_path), look)


def test_the_curves_are_of_the_last_steps_or_of_the_whole_run(tmp_path: Path) -> None:
    async def look(person: Person) -> None:
        await person.until("steps 101 to 400")
        await person.press("w")
        await person.until("whole run, steps 1 to 400")
        await person.press("w")
        await person.until("steps 101 to 400")

    watched(run_folder(tmp_path), look)


def test_a_pause_holds_everything_until_the_next(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, log=LOG)

    async def look(person: Person) -> None:
        await person.until("step 199 loss")
        await person.press("space")
        await person.until("paused")
        with (folder / "rank-0.log").open("ab") as log:
            log.write(b"one more\r\n")
        await asyncio.sleep(1.5)
        assert "one more" not in person.read
        await person.press("space")
        await person.until("one more")
        assert "paused" not in person.read

    watched(folder, look)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_closing_closes(tmp_path: Path, key: str) -> None:
    async def look(person: Person) -> None:
        await person.press(key)
        for _ in range(100):
            if not person.app.is_running:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it is still there")

    watched(run_folder(tmp_path), look)


def test_a_run_that_is_removed_under_it_keeps_standing(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", log=LOG, end=None)

    async def look(person: Person) -> None:
        await person.until("INPUT BOUND", "step 199 loss")
        shutil.rmtree(folder)
        await person.press("left")
        await person.until("held", "INPUT BOUND", "step 199 loss")
        assert "only steps" not in person.read
        await person.press("escape", "s")
        await person.until("── system")

    watched(folder, look)


def test_a_damaged_folder_is_said_in_a_sentence_and_the_output_still_stands(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, log=LOG, end=None)
    (folder / "node-0" / "run.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)

    async def look() -> None:
        app = RunApp(open_run(folder), palette=Palette())
        async with app.run_test(size=(80, 24)) as pilot:
            person = Person(app, pilot)
            await person.until("database", "step 199 loss")

    asyncio.run(look())


@pytest.mark.parametrize(
    "hostile",
    [b"\x1b]52;c;b3duZWQ=\x07", b"\x1b]0;owned\x07", b"\x1b[?1000h\x1b[?1049h", b"\x1bc", b"\x1bP+q544e\x1b\\"],
)
def test_nothing_that_drives_a_terminal_gets_from_the_output_into_a_strip(tmp_path: Path, hostile: bytes) -> None:
    async def look(person: Person) -> None:
        await person.until("before after")
        for strip in person.app.query_one(Canvas).strips:
            assert strip.text.isprintable()
            assert "owned" not in strip.text

    watched(run_folder(tmp_path, log=b"before " + hostile + b"after\r\n"), look)


def test_without_colours_nothing_is_coloured_neither_ours_nor_the_scripts(tmp_path: Path) -> None:
    async def look(person: Person) -> None:
        await person.until("INPUT BOUND", "step 199 loss")
        segments = [segment for strip in person.app.query_one(Canvas).strips for segment in strip]
        assert [s.text for s in segments if s.style and (s.style.color or s.style.bgcolor)] == []
        assert any(s.style and s.style.reverse and "INPUT BOUND" in s.text for s in segments)

    watched(run_folder(tmp_path, log=LOG), look, palette=Palette("none"))


def test_sixteen_colours_are_those_of_the_terminal_and_the_ground_stays_its_own(tmp_path: Path) -> None:
    async def look(person: Person) -> None:
        await person.until("INPUT BOUND")
        styles = [s.style for strip in person.app.query_one(Canvas).strips for s in strip if s.style]
        numbers = {style.color.number for style in styles if style.color}
        assert None not in numbers
        assert max(number for number in numbers if number is not None) < 16
        assert len([style for style in styles if style.bgcolor]) == 1  # the badge

    watched(run_folder(tmp_path), look, palette=Palette("16", "light"))


def test_a_resize_draws_anew(tmp_path: Path) -> None:
    async def act() -> None:
        app = RunApp(open_run(run_folder(tmp_path, log=LOG)), palette=Palette())
        async with app.run_test(size=(120, 40)) as pilot:
            person = Person(app, pilot)
            await person.until("INPUT BOUND", "phases, ms a step")
            await pilot.resize_terminal(40, 20)
            await person.until("phases, ms a step", is_there=False)
            assert {strip.cell_length for strip in app.query_one(Canvas).strips} == {40}

    asyncio.run(act())


def test_a_look_that_costs_much_is_taken_seldom_and_another_question_is_answered_at_once(tmp_path: Path) -> None:
    clock, spent = iter([0.0, 0.0, 3.0, 7.0]), iter([0.0, 0.05])

    def now_s() -> float:
        return next(clock)

    watch = scenes.Watch(StillRunning(run_folder(tmp_path)), clock=now_s, cost_clock=lambda: next(spent))
    scene = watch.look(scenes.Asked())

    assert scene.is_running
    assert not watch.is_due(scenes.Asked())  # 50 ms of CPU: 3 s later is too soon
    assert watch.is_due(scenes.Asked(is_whole=True))
    assert watch.is_due(scenes.Asked())  # 7 s later it is not
