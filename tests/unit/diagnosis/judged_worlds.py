"""Judges simulated ranks: from their steps to the findings, as a run of theirs would be."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Optional, Sequence

from tests.builders import host_samples, rank_state
from tests.unit.analysis.rank_worlds import World, simulate
from traceml.analysis.facts import Facts
from traceml.analysis.gather import RankWindow, facts_of
from traceml.analysis.ledger import Ledger
from traceml.diagnosis.finding import Diagnosis, Finding
from traceml.diagnosis.verdict import diagnose
from traceml.schema.records import ProcessSample, StepRecord

NAMES = ("STRAGGLER", "ROTATING_STRAGGLER")


def facts_of_ranks(
    steps: Sequence[Sequence[StepRecord]],
    *,
    num_cores: Optional[float] = 2.0,
    unwatched: Optional[Mapping[str, str]] = None,
    device: str = "cpu",
    world_size: Optional[int] = None,
    processes: Sequence[ProcessSample] = (),
) -> Facts:
    """What is known of ranks with these steps."""
    num_ranks = world_size or len(steps)
    ledger, windows = Ledger(num_ranks), []
    for rank, own in enumerate(steps):
        ledger.feed(rank, own, regions={})
        state = replace(rank_state(rank=rank, world_size=num_ranks, device=device), unwatched=unwatched or {})
        windows.append(RankWindow(state, tuple(own)))
    host = host_samples(num_cores=num_cores)
    return facts_of(
        windows, units=ledger.take(), ledger=ledger.state, host=host, world_size=num_ranks, processes=processes
    )


def judged(world: World, num_steps: int = 80, **surroundings: object) -> Diagnosis:
    """What is said of a world's run."""
    return diagnose(facts_of_ranks(simulate(world, num_steps), **surroundings))  # type: ignore[arg-type]


def named(diagnosis: Diagnosis) -> Optional[Finding]:
    """The finding that names a rank, or a rotation; None when none does."""
    return next((finding for finding in diagnosis.step_time if finding.diagnosis in NAMES), None)
