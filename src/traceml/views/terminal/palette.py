"""Gives each phase and each state its colour and sign, for dark, light and 16-colour terminals, and for none."""

from __future__ import annotations

from typing import Final, NamedTuple, Optional

from traceml.schema import phases


class Ink(NamedTuple):
    """A colour as terminals can show it: on a dark ground, on a light one, and the numbers 0 to 15 of the 16."""

    dark: str  # "#E69F00"
    light: str
    dark_16: int
    light_16: int


class Style(NamedTuple):
    """How a piece of text is drawn. A badge is black on its ink, reversed where there are no colours."""

    ink: Optional[Ink] = None
    is_bold: bool = False
    is_dim: bool = False
    is_badge: bool = False


class Sign(NamedTuple):
    """A phase's ink and the glyph that tells it apart without colour, as a block and in ASCII."""

    ink: Ink
    block: str
    ascii: str


#: Okabe and Ito's colours, darkened for light grounds until their contrast is 3 or more; backward lightened for dark.
_ORANGE: Final = Ink("#E69F00", "#B87700", 3, 3)
_YELLOW: Final = Ink("#F0E442", "#8A7F00", 11, 3)
_SKY: Final = Ink("#56B4E9", "#1F7FB8", 6, 6)
_BLUE: Final = Ink("#3D8FD1", "#0072B2", 4, 4)
_GREY: Final = Ink("#999999", "#767676", 7, 8)
_GREEN: Final = Ink("#009E73", "#00805D", 2, 2)
_PURPLE: Final = Ink("#CC79A7", "#A84F80", 5, 5)
_BROWN: Final = Ink("#B08050", "#8C5A2B", 3, 3)
_PINK: Final = Ink("#F79AC8", "#C2408B", 13, 13)
_TEAL: Final = Ink("#5FC9B8", "#2B7F73", 14, 6)
_PALE: Final = Ink("#BBBBBB", "#868686", 7, 8)

_SIGNS: Final[dict[str, Sign]] = {
    phases.INPUT: Sign(_ORANGE, "█", "#"),
    phases.H2D: Sign(_YELLOW, "▚", "^"),
    phases.FORWARD: Sign(_SKY, "▓", "="),
    phases.BACKWARD: Sign(_BLUE, "▒", "+"),
    phases.SYNC: Sign(_GREY, "╱", "/"),
    phases.OPTIMIZER: Sign(_GREEN, "▞", "%"),
    phases.EVAL: Sign(_PURPLE, "▌", "e"),
    phases.CHECKPOINT: Sign(_BROWN, "▄", "c"),
    phases.COMPILE: Sign(_PINK, "▙", "@"),
    phases.BETWEEN_STEPS: Sign(_PALE, "╲", "\\"),
}
_REGION: Final = Sign(_TEAL, "▐", "~")
_REST: Final = Sign(_PALE, "░", ".")

PLAIN: Final = Style()
BOLD: Final = Style(is_bold=True)
DIM: Final = Style(is_dim=True)
CURVE: Final = Style(_SKY)
#: Red is for trouble alone. Each state is said in words beside its colour.
TROUBLE: Final = Ink("#FF6E60", "#D9463A", 9, 1)
WARNING: Final = Ink("#E8B73A", "#A87800", 11, 3)
CALM: Final = Ink("#8FB8A8", "#9CC9B7", 7, 7)
AWAITED: Final = Style(_GREY)
ALARM: Final = Style(TROUBLE, is_bold=True)
_SEVERITIES: Final = {"critical": TROUBLE, "warning": WARNING}


def sign_of(phase: str) -> Sign:
    """A phase's sign; all regions have one, and so have all rests."""
    if phase.startswith(phases.REGION_PREFIX):
        return _REGION
    return _SIGNS.get(phase, _REST)


def badge_of(severity: str) -> Style:
    """The badge of a verdict: red when critical, yellow for a warning, quiet else."""
    return Style(_SEVERITIES.get(severity, CALM), is_bold=True, is_badge=True)


class Palette(NamedTuple):
    """What the terminal can show."""

    colours: str = "none"  # none | 16 | 256 | true
    background: str = "dark"  # dark | light

    def sgr(self, style: Style) -> str:
        """The SGR sequence that begins the style; empty for a plain one."""
        codes = ["1"] * style.is_bold + ["2"] * style.is_dim
        if style.is_badge:
            codes += ["7"] if self.colours == "none" or style.ink is None else [*self._fill(style.ink)]
        elif style.ink is not None and self.colours != "none":
            codes += [self._code(style.ink, is_back=False)]
        return f"\x1b[{';'.join(codes)}m" if codes else ""

    def spelled(self, style: Style) -> str:
        """The style in the words of rich and Textual: `bold #000000 on #ff6e60`."""
        words = ["bold"] * style.is_bold + ["dim"] * style.is_dim
        ink = style.ink if self.colours != "none" else None
        if style.is_badge:
            words += ["reverse"] if ink is None else [self._name(None), "on", self._name(ink)]
        elif ink is not None:
            words.append(self._name(ink))
        return " ".join(words)

    def _fill(self, ink: Ink) -> tuple[str, str]:
        return "30", self._code(ink, is_back=True)

    def _name(self, ink: Optional[Ink]) -> str:
        if self.colours == "16":
            return f"color({self._number(ink) if ink else 0})"
        return self._hex(ink) if ink else "#000000"

    def _hex(self, ink: Ink) -> str:
        return ink.light if self.background == "light" else ink.dark

    def _number(self, ink: Ink) -> int:
        return ink.light_16 if self.background == "light" else ink.dark_16

    def _code(self, ink: Ink, *, is_back: bool) -> str:
        ground = 10 if is_back else 0
        if self.colours == "16":
            number = self._number(ink)
            return str((30 if number < 8 else 82) + number + ground)  # noqa: PLR2004  # 90 to 97 are the bright ones
        red, green, blue = (int(self._hex(ink)[at : at + 2], 16) for at in (1, 3, 5))
        if self.colours == "256":
            return f"{38 + ground};5;{_nearest(red, green, blue)}"
        return f"{38 + ground};2;{red};{green};{blue}"


_STEPS: Final = (0, 95, 135, 175, 215, 255)  # of the cube of 6 x 6 x 6 colours


def _nearest(red: int, green: int, blue: int) -> int:
    """The nearest of the 256 colours that are the same everywhere: the cube's, and the greys."""
    cube = [min(range(6), key=lambda i, v=value: abs(_STEPS[i] - v)) for value in (red, green, blue)]  # type: ignore[misc]
    grey = min(23, max(0, round(((red + green + blue) / 3 - 8) / 10)))
    far = sum((_STEPS[i] - v) ** 2 for i, v in zip(cube, (red, green, blue)))
    if sum((8 + 10 * grey - v) ** 2 for v in (red, green, blue)) < far:
        return 232 + grey
    return 16 + 36 * cube[0] + 6 * cube[1] + cube[2]
