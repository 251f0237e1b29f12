"""Finds the rings of a run's ranks in their folder, as they appear."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Container, Final, Iterator

from traceml.collect.tail import RingTail
from traceml.errors import WireError

if TYPE_CHECKING:
    from pathlib import Path

    from traceml.collect.arrivals import Arrivals

_HALF_MADE_S: Final = 3.0  # a ring whose header is not sound by then never will be


class Rings:
    """The ring files of a folder, each opened once.

    Args:
        folder: The ring folder.
        arrivals: Looks at what else is in it.
        cursors: Those of an earlier collector, by `StoreWriter.cursors`.
        noted: Takes a line about a ring that cannot be read.
        is_live: Whether a writer may just be making one.
    """

    def __init__(
        self,
        folder: Path,
        arrivals: Arrivals,
        *,
        cursors: dict[str, str],
        noted: Callable[[str], None],
        is_live: bool,
    ) -> None:
        self._folder, self._cursors, self._noted, self._is_live = folder, cursors, noted, is_live
        self._arrivals = arrivals
        self._refused: set[str] = set()
        self._half_made: dict[str, float] = {}

    def find(self, known: Container[str], *, next_rank: int) -> Iterator[RingTail]:
        """Those that are not known yet, in the order of their names.

        Args:
            known: Names that are passed over.
            next_rank: What the first of them counts as until its writer says.
        """
        try:
            paths = sorted(self._folder.iterdir())
        except OSError:
            return  # somebody removed the folder: the maps that are held go on
        for path in paths:
            self._arrivals.look(path)
        names = [path.name for path in paths if path.suffix == ".ring"]
        for name in names:
            if name in known or name in self._refused:
                continue
            try:
                tail = RingTail(self._folder / name, rank=next_rank, cursors=self._cursors)
            except WireError as error:
                since = self._half_made.setdefault(name, time.monotonic())
                if error.slug == "ring-too-new" or not self._is_live or time.monotonic() - since > _HALF_MADE_S:
                    self._refused.add(name)
                    self._noted(str(error))
                continue
            next_rank += 1
            yield tail
