"""Holds the question for the background to its answer, to its patience, and to leaving the terminal as it was."""

from __future__ import annotations

import os
import termios
import threading
import time

import pytest

from traceml.launch.terminal.asking import ask_background

XTERM = {"TERM": "xterm-256color"}


@pytest.mark.parametrize(
    ("answer", "ground"),
    [
        (b"\x1b]11;rgb:ffff/fafa/f0f0\x1b\\", "light"),
        (b"\x1b]11;rgb:1e/1e/1e\x07", "dark"),
        (b"q\x1b]11;rgb:ffff/ffff/ffff\x07", "light"),
        (b"typed ahead", "dark"),
    ],
)
def test_a_terminal_is_asked_and_its_modes_are_as_before(answer: bytes, ground: str) -> None:
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    asked: list[bytes] = []

    def reply() -> None:
        asked.append(os.read(master, 100))
        os.write(master, answer)

    thread = threading.Thread(target=reply)
    thread.start()
    found = ask_background(XTERM, source=slave, target=slave)
    thread.join()

    assert found == ground
    assert asked[0].startswith(b"\x1b]11;?")
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


def test_who_says_nothing_holds_nobody_up() -> None:
    master, slave = os.openpty()
    start = time.monotonic()

    assert ask_background(XTERM, source=slave, target=slave) == "dark"
    assert time.monotonic() - start < 5  # 0.1 s, with room
    os.close(master)
    os.close(slave)


def test_no_terminal_is_not_waited_for_and_the_variable_comes_first() -> None:
    reader, writer = os.pipe()

    assert ask_background(XTERM, source=reader, target=writer) == "dark"
    assert ask_background({**XTERM, "COLORFGBG": "0;15"}, source=reader, target=writer) == "light"
    os.close(writer)
    assert os.read(reader, 10) == b""
    os.close(reader)
