"""Says of a running run what is now, and keeps an older Report's `live` and step number at this moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Mapping, Optional, Sequence

from traceml.report.contract import STALE_S
from traceml.schema import phases

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.schema.current import Current
    from traceml.schema.records import DeviceSample, RankState

_NS_PER_S: Final = 1e9
_MAX_LOST: Final = 8
_MAX_DEVICES: Final = 8


def live_of(current: Current, *, now_ns: int, newest_ns: int) -> Optional[Mapping[str, Any]]:
    """What the contract's `live` holds.

    Of the ranks that live it speaks of the one whose phase is open longest; of one that waits for others at last.

    Args:
        current: The newest that is known.
        now_ns: The records' clock.
        newest_ns: When the newest data was taken.
    """
    slots = [slot for slot in current.slots if slot.alive or slot.stall]
    if not slots:
        return None
    slot = min(slots, key=lambda s: (not s.stall, s.phase == phases.SYNC, s.since_ns))
    seen_ns = newest_ns if age_s(now_ns, newest_ns) > STALE_S else now_ns  # later nobody has looked
    since_s = round(max(0, seen_ns - slot.since_ns) / _NS_PER_S, 1)
    live = {"rank": slot.rank, "phase": slot.phase, "since_s": since_s, "step": slot.step}
    more = {"halted": slot.halted, "stall": slot.stall, "told": slot.told, "lost": _lost(current), **_machine(current)}
    return {**live, **{name: word for name, word in more.items() if word}}


def age_s(now_ns: int, newest_ns: int) -> float:
    """How old the newest data is."""
    return round(max(0, now_ns - newest_ns) / _NS_PER_S, 1)


def refreshed(report: Report, current: Current, *, now_wall: float, now_ns: int) -> Report:
    """An older report of a running run with the step, the time and the `live` of this moment; its figures stay.

    Args:
        report: Of the same run.
        current: Taken just now.
        now_wall: Wall clock in seconds.
        now_ns: The records' clock.
    """
    run = report.run
    last = max((state.last_step for state in current.states if state.last_step is not None), default=run.last_step)
    new_steps = 0 if last is None or run.last_step is None else max(0, last - run.last_step)
    since_s = max(0.0, now_wall - datetime.fromisoformat(run.reported_at).timestamp())
    users = [state.user_step for state in current.states if state.user_step is not None]
    fresh = replace(
        run,
        steps=run.steps + new_steps,
        last_step=last,
        user_step=max(users, default=run.user_step),
        total_steps=_total_steps(current.states) or run.total_steps,
        duration_s=round(run.duration_s + since_s, 3),
        live=live_of(current, now_ns=now_ns, newest_ns=now_ns),
        data_age_s=0.0,
    )
    return replace(report, run=fresh)


def _total_steps(states: Sequence[RankState]) -> Optional[int]:
    return next((state.total_steps for state in states if state.total_steps), None)


def _lost(current: Current) -> list[list[int]]:
    """Ranks whose process is gone and who have said no goodbye, each with the step it was in."""
    ended = {state.identity.rank for state in current.states if state.end is not None}
    gone = [slot for slot in current.slots if not slot.alive and slot.rank not in ended]
    return [[slot.rank, slot.step] for slot in gone[:_MAX_LOST]]


def _machine(current: Current) -> dict[str, Any]:
    host = current.host
    told = {} if host is None else _known(host, ("num_cores", "cpu_percent", "memory_bytes", "memory_limit_bytes"))
    names = ("name", "busy_percent", "memory_bytes", "memory_limit_bytes", "temperature_c", "power_w")
    return {"host": told, "devices": [_known(device, names) for device in current.devices[:_MAX_DEVICES]]}


def _known(record: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in names for value in [getattr(record, name)] if value is not None}


def newest_devices(samples: Sequence[DeviceSample]) -> tuple[DeviceSample, ...]:
    """The last sample of each device."""
    return tuple({sample.uuid: sample for sample in samples}.values())
