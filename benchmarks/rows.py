"""Makes Markdown rows of paired figures: what, the budget, ours, upstream's, and whether ours is within."""

from __future__ import annotations

import compileall
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence, TypeVar

import traceml

T = TypeVar("T")

OUT = Path(__file__).with_name("out")
HEAD = "| what | budget | ours | upstream | within |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class Figure:
    """A median over pairs, with the lowest and the highest."""

    median: float
    low: float
    high: float

    def text(self, unit: str, *, signed: bool) -> str:
        """`+6.4 us (5.9 to 7.1)`, three significant digits."""
        sign = "+" if signed and self.median >= 0 else ""
        return f"{sign}{_short(self.median)} {unit} ({_short(self.low)} to {_short(self.high)})"


def as_installed() -> None:
    """Gives every process of a benchmark the bytecode that an installed package has; compiling is no part of a run.

    A checkout has none where PYTHONDONTWRITEBYTECODE is set: the collector alone would take 0.13 s to compile it anew.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(str(Path(traceml.__file__).parent), quiet=2)


def figure(values: Sequence[float]) -> Figure:
    """The figure of some values, one a pair."""
    return Figure(statistics.median(values), min(values), max(values))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def compare(
    outcomes: Mapping[str, Sequence[T]], measure: Callable[[T], Optional[float]], *, paired: bool
) -> dict[str, Figure]:
    """By contender, what `measure` says; paired: less what it says of the bare run of the same round."""
    found: dict[str, Figure] = {}
    base = [measure(one) for one in outcomes["bare"]]
    for name, ones in outcomes.items():
        values = [measure(one) for one in ones]
        if paired:
            values = [v - b for v, b in zip(values, base) if v is not None and b is not None]
        known = [value for value in values if value is not None]
        if known:
            found[name] = figure(known)
    return found


def row(what: str, limit: Optional[float], unit: str, figures: Mapping[str, Figure], *, signed: bool = True) -> str:
    """A line of the table; without a limit it only informs."""
    ours, other = figures.get("ours"), figures.get("upstream")
    budget = "" if limit is None else f"at most {_short(limit)} {unit}"
    within = "" if limit is None or ours is None else "yes" if ours.median <= limit else "**no**"
    cells = (what, budget, *(one.text(unit, signed=signed) if one else "not run" for one in (ours, other)), within)
    return "| " + " | ".join(cells) + " |"


def publish(name: str, title: str, lines: Sequence[str]) -> str:
    """Prints a table and keeps it as `out/<name>.md`."""
    text = "\n".join((f"### {title}", "", HEAD, *lines, ""))
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
    return text


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
