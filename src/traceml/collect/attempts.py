"""Says what an attempt of the ranks was that a restart has ended: how far it came, who died first, in which phase."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Callable, Final, Iterable, Optional, Sequence

from traceml.schema import phases, units
from traceml.schema.attempts import Attempt, RankDeath
from traceml.schema.records import Event
from traceml.schema.stalls import DEATH, FIRST_DEATH

if TYPE_CHECKING:
    from traceml.collect.life import Life
    from traceml.collect.tail import RingTail

MAX_DEATHS: Final = 16
_SEVERAL: Final = 2  # ranks
_KILLED: Final = "killed by "
_ENDED_BY_OTHERS: Final = _KILLED + "SIGTERM"  # torchrun's, once a rank has died
_TOGETHER_NS: Final = 200_000_000
_BY_INTERRUPT: Final = ("failed with KeyboardInterrupt", _KILLED + "SIGINT")
_GOOD: Final = ("end", "shutdown", "trace-max-steps")


def is_former(tail: RingTail, life: Life, *, attempt: int) -> bool:
    """Whether a ring is of an attempt that is over; a process that trains not itself may live through them all."""
    identity = tail.state.identity
    has_been = tail.state.last_step is not None or life.is_gone(tail.pid)
    return identity.pid != 0 and identity.attempt < attempt and has_been


def attempt_of(tails: Sequence[RingTail], life: Life, *, now_ns: int) -> Attempt:
    """The attempt of some rings, of which there is at least one, all finished.

    The first death is the first process that was gone, or the first exception where the kernel tells no moments: the
    others die of it.
    """
    deaths = _deaths(tails, life, now_ns=now_ns)
    identities = [tail.state.identity for tail in tails]
    gone_ns = [life.gone_ns(tail.pid) for tail in tails if life.is_gone(tail.pid)]
    return Attempt(
        number=identities[0].attempt,
        world_size=max(identity.world_size for identity in identities),
        num_steps=max((tail.state.last_step or 0 for tail in tails), default=0),
        started_ns=min(identity.process_start_ns for identity in identities),
        ended_ns=max((ns for ns in gone_ns if ns is not None), default=now_ns),
        deaths=tuple(deaths[:MAX_DEATHS]),
    )


def deaths_of(tails: Sequence[RingTail], life: Life, *, now_ns: int) -> list[RankDeath]:
    """Who died of the last attempt's ranks, the first one first; of a single rank the run's end says it all.

    Args:
        tails: Their rings, all finished.
        life: Their processes.
        now_ns: Now.
    """
    left = [tail for tail in tails if tail.state.end is not None or life.is_gone(tail.pid)]
    if max((tail.state.identity.world_size for tail in tails), default=1) < _SEVERAL:
        return []
    return _deaths(left, life, now_ns=now_ns)


def were_interrupted(deaths: Sequence[RankDeath]) -> bool:
    """Whether a Ctrl-C came to all ranks: to two or more, and what else died did so in its wait, or was told to."""
    others = [death for death in deaths if death.how not in _BY_INTERRUPT]
    return len(deaths) - len(others) >= _SEVERAL and all(_has_followed(death) for death in others)


def events_of(
    deaths: Sequence[RankDeath], tails: Sequence[RingTail], *, memory_of: Callable[[int], Optional[int]]
) -> list[Event]:
    """An event of each of the first 16 deaths; none of them is the first where a Ctrl-C came to all.

    Args:
        deaths: The first one first.
        tails: The rings of all ranks.
        memory_of: What a rank's process held when it was looked at last.
    """
    events: list[Event] = []
    for death in deaths[:MAX_DEATHS]:
        held = memory_of(death.rank)
        memory = f", {units.size(held)} held" if held is not None else ""
        early = "" if events else _ended_before(death, tails)
        text = f"rank {death.rank} {death.how} in {phases.label(death.phase)}{memory}{early}"
        kind = FIRST_DEATH if not events and not were_interrupted(deaths) else DEATH
        events.append(Event(kind, death.rank, death.step, death.at_ns, text=text))
    return events


def _ended_before(death: RankDeath, tails: Sequence[RingTail]) -> str:
    """Who had come to a good end before the first death, with fewer steps: the others then wait for it in vain."""
    states = [tail.state for tail in tails if tail.state.end is not None and tail.state.end.how == "end"]
    found = [
        (state.end.at_ns, state.identity.rank, state.last_step or 0)
        for state in states
        if state.end is not None and state.end.at_ns is not None and state.end.at_ns < death.at_ns
    ]
    first = min((one for one in found if one[2] < death.step), default=None)
    return f"; rank {first[1]} had ended before, after {units.count(first[2])} steps" if first else ""


def _deaths(tails: Iterable[RingTail], life: Life, *, now_ns: int) -> list[RankDeath]:
    """Deaths in their order. Of those that came together, who failed while it waited, or was told to, was not first.

    Processes that go within milliseconds of one another may be seen to be gone in the same look.
    """
    found = [_death(tail, life, now_ns=now_ns) for tail in tails]
    deaths = [death for death in found if death is not None]
    until_ns = min((death.at_ns for death in deaths), default=0) + _TOGETHER_NS

    def order(death: RankDeath) -> tuple[bool, bool, int]:
        is_later = death.at_ns > until_ns
        return is_later, _has_followed(death) and not is_later, death.at_ns

    return sorted(deaths, key=order)


def _has_followed(death: RankDeath) -> bool:
    return death.phase == phases.SYNC or death.how == _ENDED_BY_OTHERS


def _death(tail: RingTail, life: Life, *, now_ns: int) -> Optional[RankDeath]:
    end = tail.state.end
    if end is not None and end.how in _GOOD and not _has_failed_later(tail, life):
        return None
    slot, how = tail.live(now_ns, alive=False), _how(tail, life)
    step, phase = slot.step, slot.phase
    if tail.raised is not None and (how == _ENDED_BY_OTHERS or not how.startswith(_KILLED)):  # a kill comes anywhere
        step, phase = tail.raised
    if end is not None and end.at_ns is not None:
        at_ns = end.at_ns
    else:
        at_ns = (life.gone_ns(tail.pid) if life.is_gone(tail.pid) else None) or slot.since_ns
    return RankDeath(tail.state.identity.rank, step, phase, at_ns, how)


def _has_failed_later(tail: RingTail, life: Life) -> bool:
    """Whether the process said goodbye as after a good end, and then left with a code: a `sys.exit(5)` is not seen."""
    end, status = tail.state.end, life.wait_status(tail.pid)
    return end is not None and end.how == "end" and status is not None and os.waitstatus_to_exitcode(status) > 0


def _how(tail: RingTail, life: Life) -> str:
    end = tail.state.end
    if end is not None and end.exception:
        return f"failed with {end.exception}"
    return how_ended(life.wait_status(tail.pid))


def how_ended(status: Optional[int]) -> str:
    """How a process went that said nothing itself: by its wait status, None where the kernel does not tell."""
    if status is None:
        return "gone without a word"
    code = os.waitstatus_to_exitcode(status)
    return f"{_KILLED}{_signal_name(-code)}" if code < 0 else f"left with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
