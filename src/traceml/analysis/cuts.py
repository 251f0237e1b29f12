"""Cuts a period at the end of its last wait for other ranks: what came before it, and what after."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional, Sequence

if TYPE_CHECKING:
    from traceml.analysis.waited import PeriodFetches


@dataclass
class Cut:
    """The period as it was when its last sync ended: exclusive time by slot, and the fetches by their iterator."""

    end_ns: int
    acc: list[int]
    num_syncs: int = 1
    longest_ns: int = 0
    waited: dict[int, int] = field(default_factory=dict)  # whose they were is decided late
    eval_ns: int = 0  # fetches that were known to be no training's

    def put_behind(self, acc: Sequence[int], fetches: PeriodFetches) -> None:
        """Another period turned out to be the first part of this one."""
        self.acc = [mine + theirs for mine, theirs in zip(self.acc, acc)]
        self.take_in(fetches)

    def take_in(self, fetches: PeriodFetches) -> None:
        """Adds fetches that lie before the cut."""
        waited = self.waited
        for serial, found in fetches.training.items():
            waited[serial] = waited.get(serial, 0) + found.ns
        for serial, found in fetches.undecided.items():
            waited[serial] = waited.get(serial, 0) + found.ns
        self.eval_ns += fetches.eval_ns


def cut_at(
    end_ns: int,
    acc: Sequence[int],
    fetches: PeriodFetches,
    *,
    sync_ns: int,
    open_fetch: tuple[int, int],
    last: Optional[Cut],
) -> Cut:
    """A sync ends here; the period's earlier one no longer counts.

    Args:
        end_ns: When.
        acc: The period's exclusive times so far, by slot.
        fetches: The period's so far.
        sync_ns: What this sync took.
        open_fetch: An iterator, and what its open fetch took so far.
        last: The cut at the period's sync before.
    """
    cut = Cut(end_ns, list(acc), longest_ns=sync_ns)
    cut.take_in(fetches)
    serial, ns = open_fetch
    if ns:
        cut.waited[serial] = cut.waited.get(serial, 0) + ns
    if last is not None:
        cut.num_syncs += last.num_syncs
        cut.longest_ns = max(sync_ns, last.longest_ns)
    return cut
