"""Reads colours and attributes from the parameters of `CSI m`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

NUMBER: Final = re.compile(r"\d{1,5}\Z")


@dataclass(frozen=True)
class Look:
    """How text looks. A colour is `""` (the terminal's own), a number of the palette as text, or `#rrggbb`."""

    fore: str = ""
    back: str = ""
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False


PLAIN: Final = Look()
_FLAGS: Final = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
_OFF: Final[dict[int, tuple[str, ...]]] = {
    22: ("bold", "dim"),
    23: ("italic",),
    24: ("underline",),
    27: ("reverse",),
    29: ("strike",),
}
#: The first codes of the palette's halves: of which ground they are, and the first one's number.
_PALETTE: Final = {30: ("fore", 0), 40: ("back", 0), 90: ("fore", 8), 100: ("back", 8)}
_OWN: Final = {39: "fore", 49: "back"}
_GIVEN: Final = {38: "fore", 48: "back"}


@lru_cache(maxsize=4096)
def changed(look: Look, parameters: str) -> Look:
    """How text looks after `CSI parameters m`; what is not known changes nothing."""
    codes = parameters.replace(":", ";").split(";")
    at = 0
    while at < len(codes):
        code = int(codes[at]) if NUMBER.match(codes[at]) else 0 if not codes[at] else -1
        at += 1
        if code in _GIVEN:
            colour, used = _colour(codes[at:])
            at += used
            look = _with(look, {_GIVEN[code]: colour})
        else:
            look = _with_code(look, code)
    return look


def _with_code(look: Look, code: int) -> Look:
    if code == 0:
        return PLAIN
    if code in _FLAGS:
        return _with(look, {_FLAGS[code]: True})
    if code in _OFF:
        return _with(look, dict.fromkeys(_OFF[code], False))
    if code in _OWN:
        return _with(look, {_OWN[code]: ""})
    first = code - code % 10
    if first in _PALETTE and code - first < 8:  # noqa: PLR2004  # colours in half a palette
        ground, number = _PALETTE[first]
        return _with(look, {ground: str(number + code - first)})
    return look


def _with(look: Look, changes: dict[str, str] | dict[str, bool]) -> Look:
    return replace(look, **changes)


def _colour(codes: list[str]) -> tuple[str, int]:
    """The colour behind 38 or 48, and how many parameters it took: `5;n` of the palette, `2;r;g;b` as it is."""
    if codes[:1] == ["5"] and len(codes) > 1 and _is_byte(codes[1]):
        return str(int(codes[1])), 2
    if codes[:1] == ["2"]:
        # `38:2::r:g:b` has an empty name of a colour space in between.
        skip = 2 if len(codes) > 1 and not codes[1] else 1
        red_green_blue = codes[skip : skip + 3]
        if len(red_green_blue) == 3 and all(map(_is_byte, red_green_blue)):  # noqa: PLR2004
            return "#" + "".join(f"{int(code):02x}" for code in red_green_blue), skip + 3
    return "", len(codes)


def _is_byte(text: str) -> bool:
    return bool(NUMBER.match(text)) and int(text) < 256  # noqa: PLR2004
