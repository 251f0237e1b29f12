"""Knows when the process was stopped or traced, so that the steps of that time are left out."""

from __future__ import annotations

from typing import Final

from traceml.schema.records import Halt

_MAX_HALTS: Final = 1024


class Halts:
    """One rank's halts. Steps are asked about in order, and what lies before them is forgotten."""

    def __init__(self) -> None:
        self._halts: list[Halt] = []
        self._told: set[tuple[str, int]] = set()  # halts whose event was given

    def learn(self, halt: Halt) -> None:
        """One more; one with the same beginning replaces what was known of it."""
        self._halts = [known for known in self._halts if _name(known) != _name(halt)][-_MAX_HALTS:]
        self._halts.append(halt)

    def during(self, start_ns: int, end_ns: int) -> tuple[Halt, ...]:
        """Those that touch a step; the steps that follow begin where this one ends."""
        if not self._halts:
            return ()
        found = tuple(halt for halt in self._halts if _touches(halt, start_ns, end_ns))
        self._halts = [halt for halt in self._halts if halt.until_ns is None or halt.until_ns > end_ns]
        return found

    def now(self) -> str:
        """Why nothing goes on at the moment; empty when it does."""
        return next((halt.why for halt in self._halts if halt.until_ns is None), "")

    def is_news(self, halts: tuple[Halt, ...]) -> bool:
        """Whether one of them has had no step yet: each is one event, however many steps it covers."""
        names = {_name(halt) for halt in halts}
        is_new = not names <= self._told
        self._told = (self._told | names) if len(self._told) < _MAX_HALTS else names
        return is_new


def _name(halt: Halt) -> tuple[str, int]:
    return halt.why, halt.since_ns


def _touches(halt: Halt, start_ns: int, end_ns: int) -> bool:
    return halt.since_ns < end_ns and (halt.until_ns is None or halt.until_ns > start_ns)
