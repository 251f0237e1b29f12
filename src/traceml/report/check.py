"""Says what is seen of a script and what is not, and what to add: the table of `traceml run --check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Iterator, Optional, Sequence

from traceml.schema import phases, units

if TYPE_CHECKING:
    from traceml.report.contract import PhaseInfo, Report
    from traceml.schema.records import LoaderInfo, RankState

_NS_PER_MS: Final = 1e6
_TRACE: Final = "`with traceml.trace_step(model):` around the body of the loop"
_ADD: Final = {
    phases.INPUT: '`loader = traceml.wrap_dataloader(loader)`, or `with traceml.region("batch"):` where they are made',
    phases.FORWARD: "the model to `trace_step(model)`, and call it as `model(x)`",
    phases.BACKWARD: '`with traceml.region("gradients"):` around what makes the gradients, if not `loss.backward()`',
    phases.OPTIMIZER: '`with traceml.region("update"):` around the update, if not a torch optimizer\'s `step()`',
}
_PARTS: Final = (phases.EVAL, phases.CHECKPOINT, phases.GC)


@dataclass(frozen=True)
class CheckRow:
    """A line of the table; `is_seen` is None for what a training may well do without."""

    name: str
    is_seen: Optional[bool]
    text: str
    add: str = ""


@dataclass(frozen=True)
class Check:
    """The table, and what stands above and below it."""

    script: str
    num_steps: int
    is_running: bool
    rows: tuple[CheckRow, ...]


def check_of(report: Report, states: Sequence[RankState]) -> Check:
    """The table of a run's first steps.

    Args:
        report: Of those steps.
        states: One a rank.
    """
    rows = (
        _steps(report),
        *(_phase(report, states, name) for name in _ADD),
        _loader(states),
        *(_part(report, name) for name in _PARTS),
        _regions(states),
        *_surroundings(report),
    )
    return Check(report.run.script, report.run.steps, report.run.status == "running", rows)


def _steps(report: Report) -> CheckRow:
    number = report.run.steps
    if not number:
        return CheckRow("steps", False, "none", _TRACE)
    if not report.run.inferred:
        return CheckRow("steps", True, f"{units.count(number)}, marked by trace_step")
    unsure = next((note for note in report.coverage.notes if note.startswith("inferred steps are unsure")), "")
    if unsure:
        return CheckRow("steps", False, f"{units.count(number)}, {unsure}", _TRACE)
    return CheckRow("steps", True, f"{units.count(number)}, inferred; {_TRACE} makes them certain")


def _phase(report: Report, states: Sequence[RankState], name: str) -> CheckRow:
    row, label = report.step_time.phases.get(name), phases.label(name)
    if row is not None and row.count:
        return CheckRow(label, True, _amount(row))
    reason = next((state.unwatched[name] for state in states if name in state.unwatched), None)
    if reason is not None:
        return CheckRow(label, False, reason)
    if not report.run.steps:
        return CheckRow(label, None, "no step to see it in")
    return CheckRow(label, False, "in none of the steps", _ADD[name])


def _part(report: Report, name: str) -> CheckRow:
    row = report.step_time.phases.get(name)
    if row is not None and row.count:
        return CheckRow(phases.label(name), True, f"{_amount(row)}, in {units.count(row.count)} of the steps")
    return CheckRow(phases.label(name), None, "none in these steps")


def _amount(row: PhaseInfo) -> str:
    return f"{units.duration((row.mean_ms or 0.0) * _NS_PER_MS)} a step"


def _loader(states: Sequence[RankState]) -> CheckRow:
    for state in states:
        numbers = {loader.number: loader for loader in state.loaders}
        found = numbers.get(state.training_loader or 0)
        if found is not None:
            return CheckRow("loader", True, _settings(found))
    return CheckRow("loader", None, "no DataLoader fed the steps")


def _settings(loader: LoaderInfo) -> str:
    known = (
        ("dataset", loader.dataset or None),
        ("batch", loader.batch_size),
        ("num_workers", loader.num_workers),
        ("pin_memory", loader.pin_memory),
        ("persistent_workers", loader.persistent_workers),
        ("prefetch_factor", loader.prefetch_factor),
    )
    return ", ".join(f"{name} {value}" for name, value in known if value is not None)


def _regions(states: Sequence[RankState]) -> CheckRow:
    names = dict.fromkeys(name for state in states for name in state.regions.values())
    if names:
        return CheckRow("regions", True, ", ".join(names))
    return CheckRow("regions", None, 'none; `with traceml.region("augment"):` gives a part of yours its own row')


def _surroundings(report: Report) -> Iterator[CheckRow]:
    note = f" ({report.coverage.clock_note})" if report.coverage.clock_note else ""
    is_device = report.coverage.clock == "device"
    clock = "timed by the device's own clock" if is_device else f"timed by the host's clock{note}"
    yield CheckRow("device", True, f"{report.run.device}, {clock}")
    heard = len(report.coverage.ranks)
    yield CheckRow("ranks", heard == report.run.world_size if heard else None, f"{heard} of {report.run.world_size}")
    for fault in report.coverage.faults:
        yield CheckRow(fault.hook, False, f"a fault of ours: {fault.error}")
