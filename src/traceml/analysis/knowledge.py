"""Keeps what a rank's messages and records say about it: who it is, its loaders and regions, our faults, its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence

from traceml.schema.bill import Bill, Shed
from traceml.schema.model import MAX_MODELS, ModelInfo
from traceml.schema.records import (
    HALTED,
    Compilation,
    Fault,
    LoaderInfo,
    RankEnd,
    RankIdentity,
    RankState,
    RegionName,
    StepRecord,
    Unrecorded,
    Watching,
)
from traceml.wire.codec import Body


def learned(state: RankState, body: Body) -> RankState:  # noqa: C901  # a line a body
    """The state with a message's body taken in; bodies that say nothing of the rank leave it as it is."""
    if isinstance(body, RankIdentity):
        return replace(state, identity=body)
    if isinstance(body, LoaderInfo):
        others = tuple(loader for loader in state.loaders if loader.number != body.number)
        return replace(state, loaders=(*others, body))
    if isinstance(body, RegionName):
        return replace(state, regions={**state.regions, body.number: body.name})
    if isinstance(body, Watching):
        total = body.total_steps if body.total_steps is not None else state.total_steps
        clock = "device" if state.clock == "device" else body.clock  # the steps before it has changed keep theirs
        return replace(
            state,
            watched=body.phases,
            unwatched=body.unseen,
            total_steps=total,
            clock=clock,
            clock_note=body.clock_note,
        )
    if isinstance(body, Fault):
        kept = tuple(fault for fault in state.faults if fault.hook != body.hook)
        return replace(state, faults=(*kept, body))
    if isinstance(body, ModelInfo):
        state = replace(state, models=tuple(dict.fromkeys((*state.models, body)))[:MAX_MODELS])
    if isinstance(body, Bill):
        state = replace(state, bill=body)
    if isinstance(body, Shed):
        state = replace(state, shed=(*(one for one in state.shed if one.signal != body.signal), body))
    if isinstance(body, Unrecorded):
        state = replace(state, unrecorded=body)
    if isinstance(body, Compilation):
        state = replace(state, num_compilations=body.num_compilations, num_recompilations=body.num_recompilations)
    return replace(state, end=body) if isinstance(body, RankEnd) else state


def advanced(state: RankState, steps: Sequence[StepRecord], *, training_loader: Optional[int]) -> RankState:
    """The state behind newly finished steps, of which there is at least one."""
    user_steps = [step.user_step for step in steps if step.user_step is not None]
    return replace(
        state,
        first_step=steps[0].step if state.first_step is None else state.first_step,
        last_step=steps[-1].step,
        num_failed=state.num_failed + sum(step.failed_in not in (None, HALTED) for step in steps),
        num_halted=state.num_halted + sum(step.failed_in == HALTED for step in steps),
        training_loader=state.training_loader if training_loader is None else training_loader,
        user_step=user_steps[-1] if user_steps else state.user_step,
    )
