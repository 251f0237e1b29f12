"""Speaks quantities to people: three significant digits, a unit on every number."""

from __future__ import annotations

import math
import re
from typing import Final, Sequence

_NS_PER_MS = 1e6
_KIB = 1024.0
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
THIN = ","  # thousands, as in 1,204


def significant(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, without an exponent: 1,204; 35.6; 0.021."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{round(value, decimals):,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text and abs(value) >= 100 else text  # noqa: PLR2004


def duration(ns: float) -> str:
    """A duration: ms below 10 s, then s, min, h. `35.6 ms`, `12.4 s`, `6 min 45 s`, `2 h 5 min`."""
    seconds = ns / 1e9
    if seconds < 10 or not math.isfinite(seconds):  # noqa: PLR2004
        return f"{significant(ns / _NS_PER_MS)} ms"
    if seconds < 60:  # noqa: PLR2004
        return f"{significant(seconds)} s"
    if seconds < 3600:  # noqa: PLR2004
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def size(num_bytes: float) -> str:
    """A size in binary units: `3.3 GiB`, `812 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if abs(num_bytes) < _KIB:
            return f"{significant(num_bytes, 2 if num_bytes < 10 else 3)} {unit}"  # noqa: PLR2004
        num_bytes /= _KIB
    return f"{significant(num_bytes, 2 if num_bytes < 10 else 3)} GiB"  # noqa: PLR2004


def percent(share: float) -> str:
    """A share (0..1) as whole percent: `44 %`; below one percent `0.4 %`."""
    value = share * 100
    return f"{value:.1f} %" if 0 < value < 1 else f"{value:.0f} %"


def count(number: int) -> str:
    """A whole number with separators: `1,204`."""
    return f"{number:,}"


def clean(text: str) -> str:
    """Text that came from the user's side, without control characters: nothing of it can take over a terminal."""
    return "".join(" " if ch in "\n\r\t" else ch for ch in text if ch in "\n\r\t" or (ch.isprintable()))


def printed(line: str) -> str:
    """A line of a program's output as people saw it: a progress bar's last state, without escape sequences."""
    return clean(_ESCAPE.sub("", line).rpartition("\r")[2])


def listed(numbers: Sequence[int], *, most: int = 4) -> str:
    """Some numbers in a sentence: `1`, `1 and 3`, `0, 1, 2, 3 and 60 more`."""
    shown = [f"{number}" for number in numbers[:most]]
    if len(numbers) > most:
        return f"{', '.join(shown)} and {len(numbers) - most} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
