"""Remembers which modes of the terminal the script changed, and changes them back."""

from __future__ import annotations

from typing import Final

#: Private modes that outlive a program: on, and off again at the end.
_ON: Final = frozenset((1, 5, 9, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2031))
#: Those that are on where nobody touched them.
_OFF: Final = frozenset((7, 25))
_SYNC: Final = 2026
#: Screens of their own: each saves the one before.
ALTERNATE: Final = frozenset((47, 1047, 1049))


class Modes:
    """What is not as at the start."""

    def __init__(self) -> None:
        self._changed: set[int] = set()
        self.alternate = 0  # the mode by which the other screen was entered; 0: we are on the main one
        self.is_synchronized = False
        self._others: dict[str, bytes] = {}

    @property
    def shown(self) -> bytes:
        """What shows the cursor and wraps again, where the script did not switch that off."""
        return b"".join(b"\x1b[?%dh" % number for number in sorted(_OFF, reverse=True) if number not in self._changed)

    def set(self, number: int, *, on: bool) -> None:
        """The script switches a private mode."""
        if number == _SYNC:
            self.is_synchronized = on
        elif number in ALTERNATE:
            self.alternate = number if on else 0
        elif on == (number in _ON):
            if number in _ON or number in _OFF:
                self._changed.add(number)
        else:
            self._changed.discard(number)

    def other(self, name: str, undo: bytes, *, on: bool) -> None:
        """The script changes something that is no private mode."""
        if on:
            self._others[name] = undo
        else:
            self._others.pop(name, None)

    def undo(self) -> bytes:
        """What puts everything back but the screen; the script's modes stay known, for `redo`."""
        back = [b"\x1b[?2026l"] if self.is_synchronized else []
        back += [b"\x1b[?%d%c" % (number, b"hl"[number in _ON]) for number in sorted(self._changed)]
        return b"".join([*back, *self._others.values(), b"\x1b[0m"])

    def redo(self) -> bytes:
        """What brings the script's private modes back, after it was stopped and goes on."""
        return b"".join(b"\x1b[?%d%c" % (number, b"lh"[number in _ON]) for number in sorted(self._changed))
