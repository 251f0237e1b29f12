"""Writes paths into files so that processes with different locales mean the same bytes by them.

The collector runs isolated, and so in UTF-8 where the launcher and the script, under LC_ALL=C, may have ASCII: there
the same name is another text, one of surrogates. In files stands what the bytes are in UTF-8.
"""

from __future__ import annotations

import os


def to_file(text: str) -> str:
    """What to write for a path, or another text of the system's, that this process has."""
    try:
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # it never came from the system
        return text


def from_file(text: str) -> str:
    """What this process calls the path that was written so."""
    try:
        return os.fsdecode(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # surrogates that no path has
        return text


def usable(text: str) -> str:
    """A path from a settings file in UTF-8, or from the system: as this process can open it."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return from_file(text)
    return text
