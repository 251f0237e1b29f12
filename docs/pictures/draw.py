"""Trains examples/train.py under TraceML, and draws what a person sees of it: the README's pictures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

from terminal_svg import FORE, PALETTE, Cell, svg

from tests.processes.terminal import Terminal, environment
from traceml.report.run import Run, open_run
from traceml.views.terminal.app import Canvas, RunApp
from traceml.views.terminal.palette import Palette

if TYPE_CHECKING:
    from rich.color import Color
    from textual.strip import Strip

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "train.py"
SIZE = (120, 36)
STEPS = 300
INLINE_SIZE = (100, 24)
SHOWN_AT = 225  # steps: late enough for a calm verdict
PATIENCE_S = 180


def main() -> None:
    """Writes attach.svg and inline.svg beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        _write(
            "attach",
            _attached(Path(folder)),
            title="traceml attach: verdict, price and next step, phases, curves, output",
        )
    with tempfile.TemporaryDirectory() as folder:
        _write("inline", _inline(Path(folder)), title="traceml run: the script's own output, and a panel below it")


def _write(name: str, rows: list[list[Cell]], *, title: str) -> None:
    (HERE / f"{name}.svg").write_text(svg(rows, title=title), encoding="utf-8")


def _command(*options: str) -> list[str]:
    words = ["run", *options, "--run-name", "gratings", str(EXAMPLE), "--steps", str(STEPS)]
    return [sys.executable, "-m", "traceml", *words]


def _attached(folder: Path) -> list[list[Cell]]:
    """A person who attached to a training that runs elsewhere."""
    command = _command("--mode=summary", "--save-output")
    training = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        strips = asyncio.run(_seen(_opened(folder / "logs" / "gratings")))
    finally:
        training.wait()
    return [list(_cells(strip)) for strip in strips]


def _inline(folder: Path) -> list[list[Cell]]:
    """The terminal in which the training was started."""
    columns, rows = INLINE_SIZE
    seen = Terminal(_command(), cwd=folder, rows=rows, columns=columns, environ=environment(COLORTERM="truecolor"))
    try:
        assert seen.until(lambda: f"step {SHOWN_AT:4d}" in seen.everything, patience_s=PATIENCE_S)
        seen.look(2.0)
        buffer = seen.screen.buffer
        drawn = [[_drawn(buffer[y][x]) for x in range(columns)] for y in range(rows)]
        seen.finish()
    finally:
        seen.close()
    return drawn


def _drawn(char: Any) -> Cell:
    """A character of pyte's; where it is reversed, or its colour has a name."""
    names = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
    fore, back = (
        PALETTE[names.index(name)] if name in names else "" if name == "default" else f"#{name}"
        for name in (char.fg, char.bg)
    )
    return Cell(char.data or " ", fore or FORE, back or None, char.bold)


def _opened(folder: Path) -> Run:
    until = time.monotonic() + PATIENCE_S
    while not (folder / "manifest.json").exists():
        assert time.monotonic() < until, "the run did not start"
        time.sleep(0.1)
    return open_run(folder)


async def _seen(run: Run) -> list[Strip]:
    """The screen of a person who attached, when the run has come far enough."""
    app = RunApp(run, palette=Palette("true"))
    async with app.run_test(size=SIZE):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            await asyncio.sleep(0.2)
            report = app.scene.report
            if report is not None and report.run.steps >= SHOWN_AT and report.run.status == "running":
                await asyncio.sleep(1.5)  # until the output has caught up, too
                break
        assert app.scene.report is not None, "nothing was recorded"
        return list(app.query_one(Canvas).strips)


def _cells(strip: Strip) -> Iterator[Cell]:
    for segment in strip:
        style = segment.style
        fore = _hex(style.color, FORE) if style else FORE
        back = _hex(style.bgcolor, "") if style else ""
        for ch in segment.text:
            yield Cell(ch, fore, back or None, bool(style and style.bold), bool(style and style.dim))


def _hex(colour: Color | None, default: str) -> str:
    if colour is None or colour.is_default:
        return default
    if colour.number is not None:
        return PALETTE[colour.number] if colour.number < len(PALETTE) else default
    return colour.get_truecolor().hex


if __name__ == "__main__":
    main()
