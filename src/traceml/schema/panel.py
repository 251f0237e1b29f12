"""Says what a terminal can show of the panel, as the launcher asks and the collector draws."""

from __future__ import annotations

from typing import Final, NamedTuple

COLOURS: Final = ("none", "16", "256", "true")
BACKGROUNDS: Final = ("dark", "light")


class PanelRequest(NamedTuple):
    """The room for the panel and the terminal's powers; every row is at most `columns` - 1 cells wide."""

    columns: int
    rows: int
    colours: str = "none"  # one of COLOURS
    background: str = "dark"  # one of BACKGROUNDS
    ascii: bool = False  # for an encoding that carries nothing else
