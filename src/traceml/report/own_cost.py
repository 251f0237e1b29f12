"""Says what tracing itself cost, as the recorder billed it, and what was given up because of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator, Optional, Sequence

from traceml.report.contract import OverheadInfo
from traceml.schema import phases, units
from traceml.schema.bill import SIGNALS

if TYPE_CHECKING:
    from traceml.schema.records import RankState

_METHOD: Final = (
    "clocked in the run, from each hook's entry to its stamp, in {clocked} of {steps} steps (medians), housekeeping as "
    "it came; not in it: calling the hooks, and what they push out of the training's caches"
)


def overhead_of(states: Sequence[RankState]) -> Optional[OverheadInfo]:
    """The bill of the rank whose tracing took the largest share of its steps; None where none was told."""
    bills = [state.bill for state in states if state.bill is not None and state.bill.num_steps and state.bill.wall_ns]
    if not bills:
        return None
    bill = max(bills, key=lambda one: one.share)
    method = _METHOD.format(clocked=units.count(bill.num_clocked), steps=units.count(bill.num_steps))
    return OverheadInfo(us_per_step=round(bill.us_per_step, 1), pct=round(100 * bill.share, 2), method=method)


def given_up(states: Sequence[RankState]) -> Iterator[str]:
    """A sentence for each signal that was shed; a phase's stands among those that are not watched."""
    for state in states:
        for shed in state.shed:
            name = SIGNALS.get(shed.signal)
            if name is not None and shed.signal not in phases.PHASE_INDEX:
                who = f"rank {state.identity.rank}: " if len(states) > 1 else ""
                took = f"{shed.us_per_step:.0f} us a step, {shed.pct:.1f} % of the period"
                yield f"{who}{name} given up at step {units.count(shed.step)}: tracing took {took}"


def counts_batches(states: Sequence[RankState]) -> tuple[bool, bool]:
    """Whether samples and tokens were counted to the end on all ranks; samples need no look where a loader says."""
    shed = [state for state in states if any(one.signal == "batches" for one in state.shed)]
    has_size = [any(loader.batch_size for loader in state.loaders) for state in shed]
    return all(has_size), not shed
