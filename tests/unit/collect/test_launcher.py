"""Tests what the collector hears from its launcher."""

from __future__ import annotations

import os

from traceml.collect.end import ScriptExit
from traceml.collect.launcher import Launcher


def heard(*parts: bytes, closed: bool = False) -> Launcher:
    reader, writer = os.pipe()
    launcher = Launcher(reader)
    for part in parts:
        os.write(writer, part)
        launcher.hear()
    os.close(writer)
    if closed:
        launcher.hear()
    os.close(reader)
    return launcher


def test_the_script_and_its_end_are_heard_even_in_pieces() -> None:
    launcher = heard(b'{"script": 7}\n{"ex', b'it": {"code": 137, "signal": "SIGKILL"}}\n')

    assert launcher.script_pid == 7
    assert launcher.exit == ScriptExit(137, "SIGKILL")
    assert launcher.is_there


def test_an_end_of_file_is_the_launchers_own_end() -> None:
    launcher = heard(b'{"script": 7}\n', closed=True)

    assert (launcher.was_there, launcher.is_there, launcher.exit, launcher.fd) == (True, False, None, None)


def test_nonsense_is_passed_over() -> None:
    launcher = heard(b'nonsense\n[1]\n{"exit": 3}\n{"exit": {"code": "x"}}\n{"script": 9}\n')

    assert (launcher.exit, launcher.script_pid) == (None, 9)


def test_a_wish_for_a_line_is_heard() -> None:
    assert heard(b'{"line": true}\n').wants_line
    assert not heard(b'{"script": 9}\n').wants_line
