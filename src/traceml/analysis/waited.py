"""Adds up what the fetches of one period took, by what is known of the iterators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from traceml.schema.known import plus


@dataclass
class Waited:
    """What one iterator's fetches took within one period."""

    ns: int = 0
    epoch_start_ns: int = 0
    num_fetches: int = 0
    num_samples: Optional[int] = None
    num_tokens: Optional[int] = None

    def add(self, other: Waited) -> None:
        """Takes other fetches in."""
        self.ns += other.ns
        self.epoch_start_ns += other.epoch_start_ns
        self.num_fetches += other.num_fetches
        self.num_samples = plus(self.num_samples, other.num_samples)
        self.num_tokens = plus(self.num_tokens, other.num_tokens)


@dataclass
class PeriodFetches:
    """The fetches of one period, by what is known of them."""

    training: dict[int, Waited] = field(default_factory=dict)
    eval_ns: int = 0
    had_eval: bool = False
    undecided: dict[int, Waited] = field(default_factory=dict)

    def add(self, other: PeriodFetches) -> None:
        """Takes in the fetches of the period that follows."""
        for mine, theirs in ((self.training, other.training), (self.undecided, other.undecided)):
            for serial, waited in theirs.items():
                known = mine.setdefault(serial, waited)
                if known is not waited:
                    known.add(waited)
        self.eval_ns += other.eval_ns
        self.had_eval |= other.had_eval

    def decide(self, serial: int, *, is_training: bool) -> None:
        """Moves an iterator's undecided fetches to where they belong."""
        waited = self.undecided.pop(serial, None)
        if waited is None:
            return
        if is_training:
            known = self.training.setdefault(serial, waited)
            if known is not waited:
                known.add(waited)
        else:
            self.eval_ns += waited.ns
            self.had_eval = True
