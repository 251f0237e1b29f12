"""Chooses the one next step for a rank that the others wait for, by the phase it is late in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator

from traceml.diagnosis.loader_advice import loader_in_words
from traceml.schema import units
from traceml.schema.phases import (
    BACKWARD,
    BETWEEN_STEPS,
    CHECKPOINT,
    COMPILE,
    EVAL,
    FORWARD,
    GC,
    H2D,
    IN_STEP,
    INPUT,
    OPTIMIZER,
    REGION_PREFIX,
    region_name,
)

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts
    from traceml.schema.records import LoaderInfo

_BY_PHASE: Final = {
    H2D: "compare its batches' size, pin_memory and PCIe link with the others'",
    FORWARD: "compare its batches' length and its device or core with the others'; then {profile}",
    BACKWARD: "compare its batches' length and its device or core with the others'; then {profile}",
    OPTIMIZER: "see whether only it holds more parameters or states to update; then {profile}",
    EVAL: "let all ranks evaluate a part each, or evaluate less often",
    CHECKPOINT: "save less often or asynchronously, or let every rank save its part",
    COMPILE: "see why only it compiles again: inputs of other shapes",
    GC: "gc.freeze() before the loop, and gc.collect() in all ranks at the same step",
    IN_STEP: 'put `with traceml.region("name"):` around what only it does inside the step',
    BETWEEN_STEPS: "do less often, or in a thread, what only it does between steps (logging, saving, metrics)",
}


def advice_for(facts: Facts, rank: int, phase: str) -> str:
    """The next action for a rank that is late in a phase."""
    if phase == INPUT:
        loader = next(_loaders(facts, rank), None)
        return f"look at the data and storage of rank {rank} and the cores its loader has; {loader_in_words(loader)}"
    if phase.startswith(REGION_PREFIX):
        return f"look at the region '{region_name(phase)}' of rank {rank}, or let all ranks share its work"
    return f"rank {rank}: " + _BY_PHASE[phase].format(profile=profile_snippet(rank))


def profile_snippet(rank: int) -> str:
    """How to profile three steps of one rank, in a line."""
    return f"torch.profiler for three steps where RANK is {units.count(rank)} (docs/messages.md, STRAGGLER)"


def _loaders(facts: Facts, rank: int) -> Iterator[LoaderInfo]:
    for one in facts.ranks:
        if one.state.identity.rank == rank:
            yield from (known for known in one.state.loaders if known.number == one.state.training_loader)
