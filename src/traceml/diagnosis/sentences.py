"""Says how a cost is spread over the steps, so that no sentence claims "each step" for what a few of them hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from traceml.schema import units
from traceml.schema.distribution import Distribution, middle_of
from traceml.schema.phases import BACKWARD, BETWEEN_STEPS, FORWARD, GC, IN_STEP, INPUT, OPTIMIZER, PHASE_INDEX, label

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts, RankFacts
    from traceml.diagnosis.thresholds import Thresholds

#: The model's own work.
COMPUTE_PHASES: Final = (FORWARD, BACKWARD, OPTIMIZER)

#: How a phase that is no place by its label is said as one.
PLACES: Final = {BETWEEN_STEPS: "between steps", IN_STEP: "in the rest of the step"}

_NS_PER_MS: Final = 1e6
_NEARLY_ALL: Final = 0.995
_LONG_NS: Final = 10_000_000_000  # from 10 s on a time is spoken in s, min, h


def place_of(phase: str) -> str:
    """Where in the step a phase is, in a sentence: `in forward`, `between steps`."""
    return PLACES.get(phase, f"in {units.clean(label(phase))}")


@dataclass(frozen=True)
class Spread:
    """How a cost lies over the steady steps. `num_holding` of them hold `held_share` of it, each at least the mean."""

    is_each: bool
    num_holding: int
    num_steps: int
    held_share: float
    total_ns: int


def spread_of(cost: Distribution, *, num_steps: int, limits: Thresholds) -> Spread:
    """Looks at how a cost of steps is spread.

    Args:
        cost: The cost in ns of those steps that had any.
        num_steps: All steps.
        limits: When the typical step is like the mean one.
    """
    num_zeros = max(0, num_steps - cost.count)
    mean_ns = cost.total / num_steps if num_steps else 0.0
    typical_ns = cost.quantile(0.5, num_zeros=num_zeros) or 0.0
    holding = [(middle_of(bucket) * times, times) for bucket, times in cost if middle_of(bucket) >= mean_ns]
    num_holding = sum(times for _, times in holding)
    return Spread(
        is_each=typical_ns >= limits.each_step_share * mean_ns,
        num_holding=num_holding,
        num_steps=num_steps,
        held_share=min(1.0, sum(ns for ns, _ in holding) / cost.total) if cost.total else 0.0,
        total_ns=cost.total,
    )


def sentence(spread: Spread, rank: RankFacts, *, verb: str, of_step: bool = True, limits: Thresholds) -> str:
    """The summary of a cost, with its share and its numbers.

    Args:
        spread: How the cost lies over the steps.
        rank: The rank spoken of; it has steady steps of more than 0 ns.
        verb: What the time does: "waits for data".
        of_step: Whether the cost is inside what people call a step; else it is said of the time.
        limits: How much "most of it" is.
    """
    share = share_in_words(spread.total_ns / rank.total_ns)
    if spread.is_each:
        part, whole = spread.total_ns / rank.num_steady, rank.total_ns / rank.num_steady
        if of_step:
            return f"{share} of each step {verb}: {part_of(part, whole)}."
        return f"{share} of the time {verb}: {part_of(part, whole)} a step."
    where = ""
    if spread.num_holding and spread.held_share >= limits.most_share:
        where = f", most of it in {units.count(spread.num_holding)} of {units.count(spread.num_steps)} steps"
    return f"{share} of the time {verb}{where}: {part_of(spread.total_ns, rank.total_ns)}."


def share_in_words(share: float) -> str:
    """A share (0..1) as a sentence begins with it, never rounded to a whole that it is not: `44 %`, `Over 99 %`."""
    return "Over 99 %" if _NEARLY_ALL <= share < 1 else units.percent(share)


def part_of(part_ns: float, whole_ns: float) -> str:
    """Two times that are compared: `35.6 of 81.0 ms`, `2 min 58 s of 6 min 45 s`."""
    if whole_ns >= _LONG_NS:
        return f"{units.duration(part_ns)} of {units.duration(whole_ns)}"
    return f"{units.significant(part_ns / _NS_PER_MS)} of {units.significant(whole_ns / _NS_PER_MS)} ms"


def phases_in_words(rank: RankFacts, names: tuple[str, ...]) -> str:
    """The shares of phases: `forward 30 %, backward 50 %`; those never seen are left out."""
    shares = [(name, rank.share(name)) for name in names]
    return ", ".join(
        f"{units.clean(label(name))} {units.percent(share)}" for name, share in shares if share is not None
    )


def given_up(rank: RankFacts) -> tuple[str, ...]:
    """Phases that were watched until a fault of ours took their hook off: their time is in the rests from there on."""
    return tuple(fault.hook for fault in rank.state.faults if fault.is_off and fault.hook in PHASE_INDEX)


def unseen_note(rank: RankFacts) -> str:
    """What must be said of phases that were never seen, with the reason where one is known; else nothing."""
    lost = ", ".join(label(phase) for phase in given_up(rank))
    if lost:
        return f"; {lost}: not watched any more after a fault of ours, so its time is in the rests"
    said = "; no training loader was seen, so input was not measured" if rank.phase_ns(INPUT) is None else ""
    shed = next((one.step for one in rank.state.shed if one.signal == GC), None)
    if shed is not None:
        said += f"; garbage collections are in it since step {units.count(shed)}, when watching them was given up"
    unseen = unseen_compute(rank)
    if unseen:
        reasons = dict.fromkeys(rank.state.unwatched[phase] for phase in unseen if phase in rank.state.unwatched)
        why = f" ({units.clean(', '.join(reasons))})" if reasons else ""
        said += f"; never seen: {', '.join(unseen)}{why}, whose time is then in the rests"
    return said


def unseen_compute(rank: RankFacts) -> tuple[str, ...]:
    """Those phases of the model's own work that were never seen."""
    return tuple(phase for phase in COMPUTE_PHASES if rank.phase_ns(phase) is None)


def compute_share(rank: RankFacts) -> float:
    """The share (0..1) of the model's own work, as far as it was seen."""
    return sum(rank.share(phase) or 0.0 for phase in COMPUTE_PHASES)


def profile_snippet(rank: RankFacts, limits: Thresholds) -> str:
    """How to profile three steps behind the warm-up."""
    return (
        "profile three steps: torch.profiler.profile(schedule=torch.profiler.schedule("
        f"wait={rank.num_warmup + limits.min_steady_steps}, warmup=1, active=3)), prof.step() after each step"
    )


def clock_note(facts: Facts, rank: RankFacts) -> str:
    """What must be said when a device is in use and only the host's clock is there; else nothing."""
    device = rank.state.identity.device
    if facts.clock == "device" or device.startswith("cpu"):
        return ""
    return f"; host clock: a phase that waits for the {device} device holds that wait too"
