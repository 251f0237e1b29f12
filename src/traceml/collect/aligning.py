"""Feeds the ranks' ledger with their steps as the rings give them, and goes on from the stored ones after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Tuple

from traceml.analysis.ledger import Ledger

if TYPE_CHECKING:
    from traceml.schema.records import RankState, StepRecord
    from traceml.schema.syncs import LedgerState

Stored = Callable[[int, int], Tuple[Sequence["StepRecord"], Mapping[int, str]]]
"""The steps of a rank that are stored one by one, from a step on, and the names of its regions."""


class Aligning:
    """The ledger of a run, from the first step of a rank that is not alone.

    Args:
        state: That of an earlier collector of this run; None: there was none.
        stored: What that one has stored.
    """

    def __init__(self, state: Optional[LedgerState], stored: Stored) -> None:
        self._state, self._stored = state, stored
        self._ledger: Optional[Ledger] = None

    def feed(self, state: RankState, steps: Sequence[StepRecord]) -> None:
        """Takes newly finished steps of a rank in."""
        identity = state.identity
        if not steps or identity.world_size < 2:  # noqa: PLR2004  # several ranks
            return
        if self._ledger is None:
            self._ledger = self._begin(identity.world_size)
        self._ledger.feed(identity.rank, steps, regions=state.regions)

    def take(self) -> dict[str, Any]:
        """What is to be stored with the newest steps: complete units, and how far the ledger has come."""
        if self._ledger is None:
            return {}
        return {"units": self._ledger.take(), "ledger": self._ledger.state}

    def _begin(self, world_size: int) -> Ledger:
        state, self._state = self._state, None
        if state is None or state.world_size != world_size:
            return Ledger(world_size)
        ledger = Ledger(world_size, state)
        for rank in range(world_size):
            steps, regions = self._stored(rank, state.from_step)
            ledger.feed(rank, steps, regions=regions)
        return ledger
