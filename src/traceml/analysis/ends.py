"""Counts how inferred steps ended, and says whether they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Optional

from traceml.schema import units

_NUM_RECENT: Final = 8  # ends; while half of them came by loader, an optimizer that steps again ends nothing yet
_NUM_MORE: Final = 8  # rounds of updates beyond twice those that a batch had so far
_NUM_HELD: Final = 64  # rounds, whatever the batches had


@dataclass
class Ends:
    """How the inferred steps of a run ended: what says whether they can be trusted."""

    by_loader: int = 0
    by_update: int = 0
    by_backward: int = 0
    by_nothing: int = 0  # the run was over, or trace_step began
    recent: str = ""  # the last 8 by loader (l) or update (u)
    fewest: Optional[int] = None  # updates a step
    most: int = 0
    optimizers: list[int] = field(default_factory=list)
    num_updates: int = 0
    most_rounds: int = 1  # how often an optimizer stepped in a step that ended by loader

    @property
    def total(self) -> int:
        """All ends."""
        return self.by_loader + self.by_update + self.by_backward + self.by_nothing

    @property
    def come_by_loader(self) -> bool:
        """Whether at least half of the last 8 ends came by loader."""
        return 2 * self.recent.count("l") >= len(self.recent) > 0

    @property
    def num_patient(self) -> int:
        """The rounds of updates that may yet be one batch's; with more the loader is over."""
        return min(2 * self.most_rounds + _NUM_MORE, _NUM_HELD)

    def loader_is_over(self) -> None:
        """From here on an optimizer that steps again ends a step, until ends come by loader again."""
        self.recent = ""

    def had_all(self, num_updates: int) -> bool:
        """Whether a step that had so many updates had as many as steps have here."""
        return num_updates >= (self.most or len(self.optimizers))

    def skip_to(self, num_updates: int, *, num_steps: int) -> int:
        """The number of the step that an update behind a gap belongs to, by the updates that a step has had so far."""
        a_step = max(1, round(self.num_updates / num_steps)) if num_steps else 1
        num_lost = max(0, num_updates - self.num_updates) // a_step
        self.num_updates = num_updates
        return num_steps + num_lost

    def count(self, how: str, num_updates: int) -> None:
        """One more end; of the last step of a run it is not known whether it had all its updates."""
        setattr(self, how, getattr(self, how) + 1)
        if how in ("by_loader", "by_update"):
            self.recent = (self.recent + how[3])[-_NUM_RECENT:]
            self.fewest = num_updates if self.fewest is None else min(self.fewest, num_updates)
            self.most = max(self.most, num_updates)

    def unsure(self) -> str:
        """Why the steps cannot be trusted, in words with the counts; empty when they can."""
        said = []
        if self.by_backward:
            backwards = units.count(self.by_backward)
            said.append(f"no optimizer step was seen, so each of {backwards} backwards was taken for a step")
        if self.by_loader and self.by_update:
            loader, update = units.count(self.by_loader), units.count(self.by_update)
            said.append(f"{loader} steps ended by the next batch, {update} by an optimizer that stepped again")
        if len(self.optimizers) > 1 and self.fewest != self.most:
            said.append(f"{len(self.optimizers)} optimizers made {self.fewest} to {self.most} updates a step")
        return "; ".join(said)
