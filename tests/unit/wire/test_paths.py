"""Shows that a path in a file means the same bytes to processes of other locales."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes.running import SOURCE
from traceml.wire.paths import from_file, to_file, usable

ASCII = {"PYTHONPATH": str(SOURCE), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def in_ascii(text: str, path: bytes) -> str:
    """What an expression of `paths` gives in a process whose file system's encoding is ASCII."""
    code = f"import os, sys; from traceml.wire.paths import *; print(ascii({text}))"
    done = subprocess.run([sys.executable, "-c", code, path], env=ASCII, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("path", [b"/a b", "/größe".encode(), b"/caf\xe9"])
def test_what_one_locale_writes_another_opens(path: bytes) -> None:
    ours = os.fsdecode(path)

    assert in_ascii("to_file(sys.argv[1])", path) == ascii(to_file(ours))
    assert in_ascii(f"os.fsencode(from_file({to_file(ours)!a}))", path) == ascii(path)
    assert from_file(to_file(ours)) == ours


def test_what_no_path_has_stays_as_it_is() -> None:
    assert (to_file("\ud800"), from_file("\ud800"), usable("\ud800")) == ("\ud800",) * 3


def test_a_settings_letter_becomes_what_the_locale_can_open() -> None:
    assert usable("lögs") == "lögs"
    assert in_ascii("os.fsencode(usable('l\\xf6gs'))", b"") == ascii("lögs".encode())
