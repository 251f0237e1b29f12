"""Simulates ranks that train together: what each does, who waits for whom, as step records with their cuts.

The noise is like that of four processes on two shared cores: lognormal, alike in neighbouring steps (AR(1)), with a few
long steps, and a transfer that takes a third of a healthy step.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Mapping, Optional

from traceml.analysis.ledger import Ledger
from traceml.schema.phases import PHASES
from traceml.schema.records import StepRecord
from traceml.schema.syncs import SyncCut, UnitSums

MS = 1_000_000
#: What each phase takes in a healthy step, in ms; those before the step's sync, then those after it.
BEFORE = {"between_steps": 0.3, "input": 1.0, "in_step": 0.4, "forward": 4.5, "backward": 5.0}
AFTER = {"optimizer": 2.2, "in_step": 0.1}
TRANSFER = 5.5


@dataclass
class World:
    """What is wrong with it: `delay_ms` more in `phase` of `rank`, or of each rank in turn, or of all.

    `every` says in which steps (1: each). `sync_every` makes the steps between micro-batches without a reduction.
    """

    num_ranks: int = 4
    seed: int = 0
    delay_ms: float = 0.0
    phase: str = ""
    rank: Optional[int] = None  # None: no certain one
    is_turning: bool = False
    every: int = 1
    transfer_ms: float = TRANSFER
    noise: float = 0.06
    sync_every: int = 1
    after_sync: bool = False  # the delay in `in_step` comes behind the sync
    length_noise: float = 0.0  # batches of other lengths: forward and backward move with their tokens
    slow_rank: Mapping[int, float] = field(default_factory=dict)  # how many times as slow in everything
    also_late: tuple[int, ...] = ()  # further ranks with the same delay
    pauses: Mapping[tuple[int, int], float] = field(default_factory=dict)  # ms between steps, by step and rank


def simulate(world: World, num_steps: int) -> list[list[StepRecord]]:
    """The steps of each rank, all on one clock."""
    rng = random.Random(world.seed * 7919 + 13)
    ranks = range(world.num_ranks)
    drift = [dict.fromkeys((*BEFORE, "transfer", *AFTER), 0.0) for _ in ranks]
    now = [0.0 for _ in ranks]  # ms
    found: list[list[StepRecord]] = [[] for _ in ranks]
    for step in range(1, num_steps + 1):
        turn = (step // world.sync_every) % world.num_ranks
        befores, afters, tokens = [], [], []
        for rank in ranks:
            length = math.exp(rng.gauss(0, world.length_noise)) if world.length_noise else 1.0
            before = {name: _noisy(ms, name, drift[rank], rng, world) for name, ms in BEFORE.items()}
            after = {name: _noisy(ms, name, drift[rank], rng, world) for name, ms in AFTER.items()}
            for name in ("forward", "backward"):
                before[name] *= length
            for part in (before, after):
                for name in part:
                    part[name] *= world.slow_rank.get(rank, 1.0)
            is_late = (
                rank == world.rank
                or rank in world.also_late
                or (world.is_turning and rank == turn)
                or (not world.is_turning and world.rank is None)
            )
            if world.delay_ms and is_late and step % world.every == 0:
                part = (
                    after if world.phase == "optimizer" or (world.after_sync and world.phase == "in_step") else before
                )
                part[world.phase] = part.get(world.phase, 0.0) + world.delay_ms * math.exp(rng.gauss(0, 0.03))
            before["between_steps"] += world.pauses.get((step, rank), 0.0)
            befores.append(before)
            afters.append(after)
            tokens.append(round(4096 * length))
        synced = step % world.sync_every == 0
        arrive = [now[rank] + sum(befores[rank].values()) for rank in ranks]
        transfer = _noisy(world.transfer_ms, "transfer", drift[0], rng, world)
        gone = max(arrive) + transfer
        for rank in ranks:
            sync_ms = gone - arrive[rank] + abs(rng.gauss(0, 0.1)) if synced else 0.02
            found[rank].append(
                _record(rank, step, now[rank], befores[rank], sync_ms, afters[rank], num_tokens=tokens[rank])
            )
            now[rank] = found[rank][-1].end_ns / MS
    return found


def units_of(steps: list[list[StepRecord]]) -> list[UnitSums]:
    """The ledger's units of some ranks' steps."""
    ledger = Ledger(len(steps))
    for rank, own in enumerate(steps):
        ledger.feed(rank, own, regions={})
    return list(ledger.take())


def _noisy(ms: float, name: str, drift: dict[str, float], rng: random.Random, world: World) -> float:
    drift[name] = 0.7 * drift[name] + rng.gauss(0, world.noise)
    spike = rng.expovariate(1 / 3.0) if rng.random() < 0.01 else 0.0  # one in a hundred
    return ms * math.exp(drift[name]) + spike


def _record(
    rank: int,
    step: int,
    start_ms: float,
    before: dict[str, float],
    sync_ms: float,
    after: dict[str, float],
    *,
    num_tokens: int,
) -> StepRecord:
    of_before = {name: round(ms * MS) for name, ms in before.items()}
    of_before["sync"] = round(sync_ms * MS)
    of_after = {name: round(ms * MS) for name, ms in after.items()}
    names = {*of_before, *of_after, "in_step", "between_steps"}
    phase_ns = tuple(of_before.get(n, 0) + of_after.get(n, 0) if n in names else None for n in PHASES)
    period_ns = sum(ns or 0 for ns in phase_ns)
    end_ns = round(start_ms * MS) + period_ns
    cut_ns = tuple(of_before.get(name, 0) for name in PHASES)
    cut = SyncCut(1, end_ns - sum(of_after.values()), of_before["sync"], cut_ns)
    return StepRecord(
        rank,
        step,
        end_ns,
        period_ns,
        phase_ns,
        num_micro_batches=1,
        num_optimizer_steps=1,
        num_tokens=num_tokens,
        sync=cut,
    )
