"""Defines what the Report holds of attempts of the ranks that a restart ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeathInfo:
    """A rank's process that was gone: in which step and phase, and how it went."""

    rank: int
    step: int
    phase: str
    how: str


@dataclass(frozen=True)
class AttemptInfo:
    """An attempt of the ranks that a restart ended: the first to die leads `deaths`; `file` holds its steps."""

    number: int
    world_size: int
    steps: int
    duration_s: float
    deaths: tuple[DeathInfo, ...] = ()
    file: str = ""
