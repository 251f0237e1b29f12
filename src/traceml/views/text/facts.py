"""Says in words what stands beside the verdict: what is now, speed, memory, events, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Iterator

from traceml.schema import phases, units
from traceml.schema.stalls import DEATHS
from traceml.views.text.columns import clean
from traceml.views.text.happened import FAILED, event_in_words, of_any_rank
from traceml.views.text.paces import pace_in_words
from traceml.views.text.words import millis, plural, seconds, spoken

if TYPE_CHECKING:
    from traceml.report.contract import EventInfo, Report, StepMemoryInfo

_MAX_NOTES: Final = 4
_MAX_EVENTS: Final = 5
_WAIT_PCT: Final = 10.0  # a process that waits less for a core waits as all do
_MAX_FINDINGS: Final = 3
_UNREMARKABLE: Final = frozenset({"NORMAL", "NO_DATA"})


def phase_in_words(phase: str) -> str:
    """What people call a phase; one that a newer TraceML wrote by its own name."""
    known = phase in phases.LABELS or phase.startswith(phases.REGION_PREFIX)
    return clean(phases.label(phase) if known else phase) or "?"


def findings_in_words(report: Report) -> Iterator[str]:
    """What else was found, beside the verdict."""
    sections = (report.step_time.findings, report.step_memory.findings, report.system.findings)
    found = [finding for section in sections for finding in section]
    others = [f for f in found if f.diagnosis != report.verdict.diagnosis and f.diagnosis not in _UNREMARKABLE]
    yield from (spoken(finding) for finding in others[:_MAX_FINDINGS])
    if len(others) > _MAX_FINDINGS:
        yield f"{plural(len(others) - _MAX_FINDINGS, 'further finding')} in the JSON"


def now_in_words(report: Report) -> str:
    """While running: the open phase of the rank that is longest in it; nothing else."""
    live = report.run.live
    if not live or report.run.status != "running":
        return ""
    phase, since, step, rank = (live.get(key) for key in ("phase", "since_s", "step", "rank"))
    where = f"rank {rank}, " if report.run.world_size > 1 and isinstance(rank, int) else ""
    at = f"step {units.count(step)}" if isinstance(step, int) else "before the first step"
    told = f", in {phase_in_words(phase)}" if isinstance(phase, str) and phase else ""
    since_text = f" for {seconds(since)}" if told and isinstance(since, (int, float)) and since >= 0 else ""
    return f"{where}{at}{told}{since_text}"


def clock_in_words(report: Report) -> str:
    """Which clock the verdict is on; said beside a device only, elsewhere there is one."""
    if report.run.device.startswith("cpu"):
        return ""
    if report.step_time.clock != "device":
        note = clean(report.coverage.clock_note)
        return f"the host's ({note})" if note else "the host's"
    wall = report.step_time.wall_period_ms
    if wall is None or wall.mean is None:
        return "the device's"
    return f"the device's; a step takes {millis(wall.mean)} of the wall"


def speed_in_words(report: Report) -> str:
    """Samples, tokens and steps a second, as far as they are known."""
    rate = report.throughput
    told = []
    if rate.samples_per_s is not None:
        wall = rate.wall_samples_per_s
        behind = f" ({units.significant(wall)} of the wall)" if wall is not None else ""
        told.append(f"{units.significant(rate.samples_per_s)} samples/s of training{behind}")
    if rate.tokens_per_s is not None:
        told.append(f"{units.significant(rate.tokens_per_s)} tokens/s")
    if rate.steps_per_s is not None:
        told.append(pace_in_words(report))
    return " · ".join(told)


def memory_in_words(memory: StepMemoryInfo) -> str:
    """What is held, its peak and what there is; nothing where it was not measured."""
    held, peak = memory.allocated_bytes, memory.peak_bytes
    if held is None or held.p50 is None:
        return ""
    words = {"BALANCED": "steady: "}
    told = words.get(memory.diagnosis or "", f"{clean(memory.diagnosis).lower()}: " if memory.diagnosis else "")
    told += f"{units.size(held.p50)} held"
    most = peak.max if peak and peak.max is not None else held.max
    if most is not None:
        told += f", {units.size(most)} peak"
    if memory.capacity_bytes:
        told += f" of {units.size(memory.capacity_bytes)}"
    return told + (" (process)" if memory.source == "rss" else "")


def also_in_words(report: Report) -> str:
    """Start-up, warm-up, the costliest events, and what tracing cost."""
    run = report.run
    told = []
    if run.startup_s is not None:
        told.append(f"startup {seconds(run.startup_s)}")
    if run.warmup_steps:
        took = f" ({seconds(run.warmup_s)})" if run.warmup_s is not None else ""
        told.append(f"{plural(run.warmup_steps, 'warm-up step')}{took}")
    events = events_of(report)
    told += [event_in_words(event) for event in events[:_MAX_EVENTS]]
    if len(events) > _MAX_EVENTS:
        told.append(f"{plural(len(events) - _MAX_EVENTS, 'further kind')} of events in the JSON")
    if run.failed_steps and not any(event.kind == FAILED for event in report.events):
        told.append(plural(run.failed_steps, "failed step"))
    if run.halted_steps:
        told.append(f"{plural(run.halted_steps, 'step')} left out: stopped or in a debugger")
    waited_pct = report.process.waited_for_core_pct
    if waited_pct is not None and waited_pct >= _WAIT_PCT:
        who = "a rank " if run.world_size > 1 else ""
        told.append(f"{who}waited for a core {units.percent(waited_pct / 100)} of the time")
    if report.overhead is not None:
        told.append(f"tracing {units.percent(report.overhead.pct / 100)}")
    return " · ".join(told)


def events_of(report: Report) -> list[EventInfo]:
    """What happened beside the steps, deaths apart, the costliest first."""
    return of_any_rank([event for event in report.events if event.kind not in DEATHS])


def notes_in_words(report: Report) -> Iterator[str]:
    """At most five: what was lost, moved or cannot be seen, and our own faults."""
    cover = report.coverage
    notes = [clean(note) for note in cover.notes]
    for fault in cover.faults:
        off = "; switched off" if fault.off else ""
        error = f": {clean(fault.error)}" if fault.error else ""
        notes.append(f"a fault of TraceML in {clean(fault.hook)}, {units.count(fault.count)} times{off}{error}")
    yield from notes[:_MAX_NOTES]
    if len(notes) > _MAX_NOTES:
        yield f"{plural(len(notes) - _MAX_NOTES, 'further note')} in the JSON"
