"""Takes the terminal's answer to our one question out of what was typed: whether its background is dark."""

from __future__ import annotations

import re
from typing import Final, Mapping, Optional

QUESTION: Final = b"\x1b]11;?\x07"
_ANSWER: Final = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)[^\x07\x1b]*(?:\x07|\x1b\\)")
_BEGUN: Final = re.compile(rb"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]*\x1b?)?)?)?)?\Z")
_KNOWING: Final = ("xterm", "tmux", "alacritty", "foot", "kitty", "wezterm", "rxvt", "ghostty", "vte", "iterm")
_MAX_ANSWER: Final = 64
_LIGHT_INDEX: Final = (7, 9, 10, 11, 12, 13, 14, 15)
_HALF: Final = 0.5


class Background:
    """Dark, until the environment or the terminal says light. Nobody waits for the answer."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.is_light = False
        last = environ.get("COLORFGBG", "").rpartition(";")[2]
        term = environ.get("TERM", "")
        if last.isdigit():
            self.is_light = int(last) in _LIGHT_INDEX
        self.is_asked = not last.isdigit() and any(name in term for name in _KNOWING)
        self._held = b""

    def take(self, keys: bytes) -> bytes:
        """The keys without the answer; the beginning of one waits for its rest."""
        if not self.is_asked:
            return keys
        keys, self._held = self._held + keys, b""
        found = _ANSWER.search(keys)
        if found is not None:
            self.is_asked = False
            self.is_light = _brightness(*found.groups()) > _HALF
            return keys[: found.start()] + keys[found.end() :]
        begun = _BEGUN.search(keys)
        # A lone escape is the user's own key: it must not wait.
        if begun is not None and 1 < len(begun.group()) < _MAX_ANSWER:
            self._held = begun.group()
            return keys[: begun.start()]
        return keys

    def give_up(self) -> bytes:
        """What was held back and is no answer."""
        held, self._held = self._held, b""
        return held


def _brightness(red: bytes, green: bytes, blue: bytes) -> float:
    """0..1, as the eye weighs it."""
    shares = [int(text, 16) / int("f" * len(text), 16) for text in (red, green, blue)]
    return 0.299 * shares[0] + 0.587 * shares[1] + 0.114 * shares[2]


def colours_of(environ: Mapping[str, str]) -> str:
    """`none`, `16`, `256` or `true`: what the environment says that the terminal shows."""
    term: Optional[str] = environ.get("TERM")
    if environ.get("NO_COLOR"):
        return "none"
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "true"
    return "256" if term and "256" in term else "16"
