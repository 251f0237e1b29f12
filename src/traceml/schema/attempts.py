"""Defines what is remembered of an attempt of the ranks that a restart has ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RankDeath:
    """A rank's process that is gone: in which step and phase it was, and how it went as far as that is known."""

    rank: int
    step: int  # the one that was being measured
    phase: str
    at_ns: int
    how: str  # "failed with ValueError", "killed by SIGKILL", "gone without a word"


@dataclass(frozen=True)
class Attempt:
    """A run of the ranks that a restart has ended. `number` counts from 0, as torchrun does."""

    number: int
    world_size: int
    num_steps: int  # of the rank that came farthest
    started_ns: int
    ended_ns: int
    deaths: tuple[RankDeath, ...] = ()  # at most 16, the first ones first
    file: str = ""  # its database, in the run's folder; empty: it could not be kept
