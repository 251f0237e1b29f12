"""Asks the terminal once for its background, and waits a moment for the answer: for a view that has all of it."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from contextlib import suppress
from typing import Any, Final, Mapping

from traceml.launch.terminal.keys import QUESTION, Background

_PATIENCE_S: Final = 0.1
_CHUNK: Final = 1024


def ask_background(environ: Mapping[str, str], *, source: int = 0, target: int = 1) -> str:
    """`dark` or `light`: as the environment says, else as the terminal does within 100 ms, else dark.

    Keys that came meanwhile are lost.

    Args:
        environ: The process's environment.
        source: Where the terminal answers.
        target: Where it listens.
    """
    background = Background(environ)
    if background.is_asked:
        with suppress(termios.error, OSError):
            _ask(background, source, target)
    return "light" if background.is_light else "dark"


def _ask(background: Background, source: int, target: int) -> None:
    before: list[Any] = termios.tcgetattr(source)
    tty.setcbreak(source, termios.TCSANOW)
    try:
        os.write(target, QUESTION)
        until_s = time.monotonic() + _PATIENCE_S
        while background.is_asked and select.select([source], [], [], max(0.0, until_s - time.monotonic()))[0]:
            data = os.read(source, _CHUNK)
            if not data:
                return
            background.take(data)
    finally:
        termios.tcsetattr(source, termios.TCSAFLUSH, before)
