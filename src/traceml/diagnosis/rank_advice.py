"""Chooses the one next step for a rank that the others wait for, by the phase it is late in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator, Sequence

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


_SEVERAL: Final = "compare the length of their batches and their devices or cores with the others'; then {profile}"
_ALONE: Final = {
    EVAL: "let all ranks evaluate a part each, or evaluate less often",
    CHECKPOINT: "save asynchronously or less often, or let every rank save its part",
    GC: "gc.freeze() before the loop, and gc.collect() in all ranks at the same step",
    INPUT: "find what stalled the loader of rank {rank} in those steps: slow items, a slow worker, or its storage",
    IN_STEP: 'put `with traceml.region("name"):` around what only rank {rank} does inside the step',
    BETWEEN_STEPS: "rank {rank}: do in a thread, or less often, what only it does between steps (evaluation, saving, "
    "uploading)",
}


def advice_for(facts: Facts, ranks: Sequence[int], phase: str) -> str:
    """The next action for ranks that are late in a phase."""
    named = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {units.listed(ranks)}"
    of_theirs = "its loader has" if len(ranks) == 1 else "their loaders have"
    if phase == INPUT:
        loader = next(_loaders(facts, ranks[0]), None)
        return f"look at the data and storage of {named} and the cores {of_theirs}; {loader_in_words(loader)}"
    if phase.startswith(REGION_PREFIX):
        return f"look at the region '{region_name(phase)}' of {named}, or let all ranks share its work"
    if len(ranks) > 1 and phase in (FORWARD, BACKWARD):
        return f"{named}: {_SEVERAL.format(profile=profile_snippet(ranks[0]))}"
    return f"{named}: " + _BY_PHASE[phase].format(profile=profile_snippet(ranks[0]))


def alone_advice(rank: int, phase: str) -> str:
    """The next action where all wait for what one rank does alone in a few steps."""
    if phase.startswith(REGION_PREFIX):
        return f"let all ranks share the work of the region '{region_name(phase)}', or do it less often or in a thread"
    return _ALONE[phase].format(rank=rank)


def profile_snippet(rank: int) -> str:
    """How to profile three steps of one rank, in a line."""
    return f"torch.profiler for three steps where RANK is {units.count(rank)} (docs/messages.md, STRAGGLER)"


def _loaders(facts: Facts, rank: int) -> Iterator[LoaderInfo]:
    for one in facts.ranks:
        if one.state.identity.rank == rank:
            yield from (known for known in one.state.loaders if known.number == one.state.training_loader)
