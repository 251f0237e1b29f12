"""Says what a report rests on: ranks heard, phases never seen, what was lost, our own faults; and folds the events."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, Iterator, Mapping, Optional, Sequence

from traceml.report.contract import CoverageInfo, EventInfo, FaultInfo, RankCoverage
from traceml.report.own_cost import given_up
from traceml.report.shares import ms
from traceml.schema import phases, units
from traceml.schema.records import Unrecorded

if TYPE_CHECKING:
    from traceml.analysis.facts import Facts
    from traceml.schema.records import Event, RankState

MAX_EVENTS: Final = 100
_NOTED_STEPS: Final = 3  # without device times, from which on they are worth a note ...
_NOTED_SHARE: Final = 0.01  # ... and this share of the steady steps


def coverage_of(
    facts: Facts, states: Sequence[RankState], notes: Sequence[str], *, until_s: Mapping[int, float]
) -> CoverageInfo:
    """What was heard and what was not; nothing is dropped without a note here.

    Args:
        facts: The clock and what analysis had to note.
        states: One a rank.
        notes: Sentences from the store and the run's folder.
        until_s: Each rank's last edge, in seconds since the run was made.
    """
    return CoverageInfo(
        clock=facts.clock,
        ranks=tuple(_rank(state, facts, until_s.get(state.identity.rank)) for state in states),
        unseen=_unseen(facts),
        faults=_faults(states),
        clock_note=_clock_note(facts, states),
        notes=tuple(dict.fromkeys((*_found(facts, states), *facts.notes, *_unsure(facts), *notes))),
    )


def _found(facts: Facts, states: Sequence[RankState]) -> Iterator[str]:
    yield from _losses(states)
    yield from _halted(facts)
    yield from _unrecorded(states)
    yield from _untimed(facts)
    yield from given_up(states)
    yield from _missing(facts, states)
    yield from _without_update(facts)


def fold(events: Sequence[Event]) -> tuple[tuple[EventInfo, ...], tuple[str, ...]]:
    """Equal events of a rank as one row: the first step, how many, and the median of their times.

    Returns:
        At most 100 rows in the order of their first step, those of the longest total time; a note when there were more.
    """
    groups: dict[tuple[str, int, str], list[Event]] = {}
    for event in events:
        groups.setdefault((event.kind, event.rank, event.text), []).append(event)
    if len(groups) > MAX_EVENTS:
        groups = {}
        for event in events:
            groups.setdefault((event.kind, event.rank, ""), []).append(event)
    kept = sorted(groups.items(), key=lambda item: -sum(e.duration_ns or 0 for e in item[1]))[:MAX_EVENTS]
    rows = [_folded(*key, group) for key, group in kept]
    left_out = len(groups) - len(kept)
    notes = (f"{units.count(left_out)} kinds of shorter events are left out",) if left_out else ()
    return tuple(sorted(rows, key=lambda row: (row.step, row.rank, row.kind))), notes


def _folded(kind: str, rank: int, text: str, group: Sequence[Event]) -> EventInfo:
    times = [event.duration_ns for event in group if event.duration_ns is not None]
    typical = ms(median(times)) if times else None
    return EventInfo(kind, min(e.step for e in group), rank, typical, sum(e.count for e in group), text)


def _rank(state: RankState, facts: Facts, until_s: Optional[float]) -> RankCoverage:
    number, lost = state.identity.rank, state.num_lost_edges + state.num_lost_messages
    found = next((rank for rank in facts.ranks if rank.state.identity.rank == number), None)
    device = found.device if found is not None else None
    return RankCoverage(
        number,
        state.first_step,
        state.last_step,
        lost,
        device_steps=None if device is None else device.num_steps,
        steady_steps=None if found is None else found.wall.num_steady,
        until_s=None if until_s is None else round(until_s, 1),
        end=state.end.how if state.end else None,
    )


def _clock_note(facts: Facts, states: Sequence[RankState]) -> str:
    return "" if facts.clock == "device" else next((state.clock_note for state in states if state.clock_note), "")


def _untimed(facts: Facts) -> Iterator[str]:
    """What of the steps has no device times, and why; of the last steps of every run only `ranks` tells."""
    for rank in facts.ranks:
        number, state, num_steady = rank.state.identity.rank, rank.state, rank.wall.num_steady
        num_without = num_steady - (rank.device.num_steps if rank.device is not None else 0)
        is_noted = state.clock == "device" and num_without >= max(_NOTED_STEPS, _NOTED_SHARE * num_steady)
        if is_noted and rank.num_untimed:
            left_out, steady = units.count(rank.num_untimed), units.count(num_steady)
            yield f"rank {number}: {left_out} of {steady} steady steps have no device times and are not in the shares"
        if is_noted and state.num_lost_events:
            events = units.count(state.num_lost_events)
            yield f"rank {number}: {events} device events never came to an end, or lay in a graph's capture"
        if state.num_other_events:
            events = units.count(state.num_other_events)
            yield f"rank {number}: {events} events on another device than that of the steps are not in the shares"


def _unseen(facts: Facts) -> tuple[str, ...]:
    if not facts.ranks:
        return ()
    return tuple(phase for phase in phases.PHASES if all(rank.phase_ns(phase) is None for rank in facts.ranks))


def _faults(states: Sequence[RankState]) -> tuple[FaultInfo, ...]:
    found: dict[str, FaultInfo] = {}
    for fault in (fault for state in states for fault in state.faults):
        known = found.get(fault.hook)
        count = fault.num_times + (known.count if known else 0)
        found[fault.hook] = FaultInfo(fault.hook, fault.error, count, fault.is_off or bool(known and known.off))
    return tuple(found.values())


def _losses(states: Sequence[RankState]) -> Iterator[str]:
    for state in states:
        lost = [
            f"{units.count(number)} {noun}"
            for number, noun in (
                (state.num_lost_steps, "steps"),
                (state.num_lost_edges, "edges"),
                (state.num_lost_messages, "messages"),
            )
            if number
        ]
        if lost:
            yield f"rank {state.identity.rank}: {', '.join(lost)} were lost before they could be read"


def _halted(facts: Facts) -> Iterator[str]:
    for rank in facts.ranks:
        if rank.num_halted:
            were = "step was" if rank.num_halted == 1 else "steps were"
            who = f"rank {rank.state.identity.rank}: " if len(facts.ranks) > 1 else ""
            number = units.count(rank.num_halted)
            yield f"{who}{number} {were} left out: the process was stopped or traced by a debugger"


def _unrecorded(states: Sequence[RankState]) -> Iterator[str]:
    for state in states:
        found = state.unrecorded or Unrecorded()
        for number, where in ((found.in_threads, "in another thread"), (found.overlapping, "of another coroutine")):
            if number:
                noun, were = ("step", "was") if number == 1 else ("steps", "were")
                yield (
                    f"rank {state.identity.rank}: {units.count(number)} {noun} {where} {were} not recorded: "
                    "only one step of a process is open at a time"
                )


def _missing(facts: Facts, states: Sequence[RankState]) -> Iterator[str]:
    heard = {state.identity.rank for state in states}
    silent = [rank for rank in range(facts.world_size) if rank not in heard] if heard else []
    if silent:
        first = ", ".join(str(rank) for rank in silent[:8])
        more = f" and {len(silent) - 8} more" if len(silent) > 8 else ""  # noqa: PLR2004  # as listed
        yield f"nothing was heard of rank {first}{more} of {facts.world_size}"
    for reason, names in _unwatched(states).items():
        yield f"not watched: {', '.join(phases.label(name) for name in names)} ({reason})"


def _without_update(facts: Facts) -> Iterator[str]:
    """Steps that mostly have one batch, and some more: those of an accumulation have the same number each."""
    for rank in facts.ranks:
        num_batches, num_steps = rank.all_micro_batches, rank.num_steps
        num_more = num_batches - num_steps
        if rank.state.inferred and max(2, _NOTED_SHARE * num_steps) <= num_more < num_steps:
            yield (
                f"{units.count(num_more)} of {units.count(num_batches)} batches ended without an update of their own: "
                "the time of a skipped one is in the next step"
            )
            return


def _unwatched(states: Sequence[RankState]) -> Mapping[str, list[str]]:
    by_reason: dict[str, list[str]] = {}
    for phase, reason in (item for state in states for item in state.unwatched.items()):
        names = by_reason.setdefault(reason, [])
        if phase in phases.PHASE_INDEX and phase not in names:
            names.append(phase)
    return {reason: names for reason, names in by_reason.items() if names}


def _unsure(facts: Facts) -> Iterator[str]:
    if facts.unsure:
        yield f"inferred steps are unsure: {facts.unsure}"
