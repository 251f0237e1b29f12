"""Reads of a Report in which state its run is: awaited, held, in trouble, over; in words and numbers a face draws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Iterator, Mapping, Optional

from traceml.report.contract import STALE_S
from traceml.schema import units
from traceml.views.terminal import cells
from traceml.views.terminal.bar import label_of
from traceml.views.text.ranks import deaths_in_words, stall_in_words
from traceml.views.text.words import ending, plural, seconds

if TYPE_CHECKING:
    from traceml.report.contract import Report
    from traceml.views.terminal.pace import Moment

_QUIET_S: Final = 3.0  # from here on figures are said to be old ...
_QUIET_PERIODS: Final = 3.0  # ... where steps are that much shorter
_UNKNOWN_QUIET_S: Final = 10.0
_RUNNING: Final = "running"
_MAX_LOST: Final = 3


def is_running(report: Report) -> bool:
    """Whether the run goes on."""
    return report.run.status == _RUNNING


def is_judged(report: Report) -> bool:
    """Whether there is a verdict yet."""
    return report.verdict.diagnosis != "INSUFFICIENT_DATA"


def age_in_words(report: Report, moment: Moment) -> str:
    """`as of 14 s ago` of data that stopped coming, `no step for 14 s`; empty while all is fresh."""
    age = report.run.data_age_s
    if not is_running(report):
        return ""
    if age is not None and is_stale(report):
        return f"as of {whole_seconds(age)} ago"
    is_quiet = report.run.steps > 0 and moment.quiet_s > quiet_limit_s(report)
    return f"no step for {whole_seconds(moment.quiet_s)}" if is_quiet else ""


def quiet_limit_s(report: Report) -> float:
    """How long no step may end until that is worth a word."""
    period = finite(report.step_time.period_ms.p95)
    return _UNKNOWN_QUIET_S if period is None else max(_QUIET_S, _QUIET_PERIODS * period / 1e3)


def trouble_in_words(report: Report) -> str:
    """What is wrong now: a stall, lost ranks, a stopped process, the run's bad end; empty when nothing is."""
    if not is_running(report):
        return deaths_in_words(report) or ""
    return "; ".join(filter(None, (stall_in_words(report), _lost(report), _halted(report))))


def is_stale(report: Report) -> bool:
    """Whether nobody looks at the run any more: not even what is now is of now."""
    age = report.run.data_age_s
    return is_running(report) and age is not None and age > STALE_S


def is_alarm(report: Report) -> bool:
    """Whether the trouble is one: a rank is lost or hangs, the run failed. Waiting that may end is none."""
    live = report.run.live or {}
    return not is_running(report) or bool(live.get("lost")) or live.get("stall") == "hang"


def end_in_words(report: Report) -> str:
    """`completed in 6 min 45 s`, `failed with ValueError after 6.4 s`; empty while running."""
    run = report.run
    if is_running(report):
        return ""
    ended = ending(run)
    took = seconds(run.duration_s)
    return f"{ended} after {took}" if ended else f"{cells.clean(run.status)} in {took}"


def awaited_in_words(report: Report) -> str:
    """What is awaited before the first step: `waiting for the first step, 12 s`; empty once there is one."""
    if report.run.steps or not is_running(report):
        return ""
    return f"waiting for the first step, {whole_seconds(report.run.duration_s)}"


def doing_in_words(report: Report) -> str:
    """`step 1,205, in input for 41 s`: which phase is open, and of several ranks on which."""
    live: Mapping[str, Any] = report.run.live or {}
    phase, since, step, rank = (live.get(key) for key in ("phase", "since_s", "step", "rank"))
    if not is_running(report) or not isinstance(phase, str) or not phase or stall_in_words(report):
        return ""
    where = f"rank {rank}, " if report.run.world_size > 1 and isinstance(rank, int) else ""
    at = f"step {units.count(step)}, " if isinstance(step, int) and report.run.steps else ""
    age = number(since)
    told = f" for {whole_seconds(age)}" if age is not None and age >= 1 else ""
    return f"{where}{at}in {label_of(phase)}{told}"


def host_in_words(report: Report, *, is_long: bool) -> Iterator[str]:
    """CPU, RAM and each device, as they were looked at last; the run's means where nobody looks any more."""
    live: Mapping[str, Any] = report.run.live or {}
    host = live.get("host")
    host = host if isinstance(host, dict) else {}
    cpu, cores = number(host.get("cpu_percent")), number(host.get("num_cores"))
    cpu = cpu if cpu is not None else finite(report.system.cpu_percent_mean)
    if cpu is not None:
        of = f" of {plural(round(cores), 'core')}" if is_long and cores else ""
        yield f"CPU {cpu:.0f} %{of}"
    if is_long:
        yield from _of_memory("RAM", host)
    devices = live.get("devices")
    found = [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []
    has_memory = is_long and report.step_memory.source in (None, "rss")  # else it has a row of its own
    for at, device in enumerate(found):
        name = f"GPU {at}" if len(found) > 1 else "GPU"
        yield from _device(name, device, is_long=is_long, has_memory=has_memory)


def _device(name: str, device: Mapping[str, Any], *, is_long: bool, has_memory: bool) -> Iterator[str]:
    busy, degrees, watts = (number(device.get(key)) for key in ("busy_percent", "temperature_c", "power_w"))
    told = [] if busy is None else [f"{busy:.0f} %"]
    if is_long:
        told += [] if degrees is None else [f"{degrees:.0f} °C"]
        told += [] if watts is None else [f"{watts:.0f} W"]
    told += list(_of_memory("", device)) if has_memory else []
    if told:
        yield f"{name} {' '.join(told)}"


def _of_memory(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    held, limit = number(found.get("memory_bytes")), number(found.get("memory_limit_bytes"))
    if held is not None:
        yield f"{name} {size_of(held, limit)}".strip()


def whole_seconds(value: float) -> str:
    """A time that is still running: `14 s`, `1 min 5 s`; it does not flicker."""
    if not math.isfinite(value):
        return "some time"
    return f"{math.floor(value)} s" if value < 60 else seconds(math.floor(value))  # noqa: PLR2004


def size_of(held: float, limit: Optional[float]) -> str:
    """`3.3 of 24 GiB`, `812 MiB of 24 GiB`."""
    if not limit:
        return _size(held)
    part, whole = _size(held), _size(limit)
    amount, _, unit = part.partition(" ")
    return f"{amount if whole.endswith(unit) else part} of {whole}"


def _size(num_bytes: float) -> str:
    return units.size(num_bytes).replace(".0 ", " ")


def _lost(report: Report) -> str:
    """`rank 2 lost at step 1,204`."""
    found = (report.run.live or {}).get("lost")
    pairs = [tuple(pair) for pair in found if len(pair) == 2] if isinstance(found, (list, tuple)) else []  # noqa: PLR2004
    told = [f"rank {rank} lost at step {units.count(step)}" for rank, step in pairs[:_MAX_LOST]]
    if len(pairs) > _MAX_LOST:
        told.append(f"{plural(len(pairs) - _MAX_LOST, 'further rank')} lost")
    return ", ".join(told)


def _halted(report: Report) -> str:
    why = (report.run.live or {}).get("halted")
    words = {"stopped": "the process is stopped", "traced": "the process is in a debugger"}
    return words.get(why, "") if isinstance(why, str) else ""


def finite(value: Optional[float]) -> Optional[float]:
    """The value, None where it is no number that can be drawn."""
    return value if value is not None and math.isfinite(value) else None


def number(value: object) -> Optional[float]:
    """What an open mapping holds, if it is a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return finite(float(value))
