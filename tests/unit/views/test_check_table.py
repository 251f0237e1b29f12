"""Shows the table of `traceml run --check`: what is seen, what is not, and what to add."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.views.report_builders import golden
from traceml.report.check import CheckRow, check_of
from traceml.report.contract import FaultInfo, Report
from traceml.schema.records import LoaderInfo, RankIdentity, RankState
from traceml.views.text.check import check_table

STATE = RankState(
    RankIdentity(0, 0, 1, 1, 0),
    loaders=(LoaderInfo(1, num_workers=2, batch_size=8, dataset="Pictures"),),
    training_loader=1,
)


def rows_of(report: Report, *states: RankState) -> dict[str, CheckRow]:
    return {row.name: row for row in check_of(report, states).rows}


def without(report: Report, phase: str) -> Report:
    phases = {**report.step_time.phases, phase: replace(report.step_time.phases[phase], count=0, mean_ms=None)}
    return replace(report, step_time=replace(report.step_time, phases=phases))


def test_what_is_seen_has_its_time_a_step_and_the_loader_its_settings() -> None:
    rows = rows_of(golden("input_bound"), STATE)

    assert all(rows[name].is_seen for name in ("steps", "input", "forward", "backward", "optimizer", "loader"))
    assert rows["input"].text.endswith(" ms a step")
    assert rows["loader"].text == "dataset Pictures, batch 8, num_workers 2"


def test_what_is_not_seen_says_what_to_add() -> None:
    row = rows_of(without(golden("input_bound"), "forward"), STATE)["forward"]

    assert (row.is_seen, row.text) == (False, "in none of the steps")
    assert "trace_step(model)" in row.add


def test_what_cannot_be_seen_here_says_why_and_asks_for_nothing() -> None:
    state = replace(STATE, unwatched={"forward": "torch 1.12 has no call slot"})

    row = rows_of(without(golden("input_bound"), "forward"), state)["forward"]

    assert (row.is_seen, row.text, row.add) == (False, "torch 1.12 has no call slot", "")


def test_steps_are_told_apart_marked_inferred_and_unsure() -> None:
    report = golden("input_bound")
    inferred = replace(report, run=replace(report.run, inferred=True))
    note = "inferred steps are unsure: 12 by loader, 3 by update"
    unsure = replace(inferred, coverage=replace(inferred.coverage, notes=(note,)))

    assert "marked by trace_step" in rows_of(report)["steps"].text
    assert "inferred; " in rows_of(inferred)["steps"].text
    assert (rows_of(unsure)["steps"].is_seen, note in rows_of(unsure)["steps"].text) == (False, True)


def test_without_a_step_the_step_alone_is_asked_for() -> None:
    report = golden("input_bound")
    none = replace(report, run=replace(report.run, steps=0), step_time=replace(report.step_time, phases={}))

    assert [row.name for row in check_of(none, ()).rows if row.is_seen is False] == ["steps"]


def test_a_fault_of_ours_stands_in_the_table() -> None:
    report = golden("input_bound")
    faulty = replace(report, coverage=replace(report.coverage, faults=(FaultInfo("gc", "OSError: x", 1, off=False),)))

    assert rows_of(faulty)["gc"] == CheckRow("gc", False, "a fault of ours: OSError: x")


def test_no_line_is_wider_than_80_columns_and_ascii_is_ascii() -> None:
    report = without(without(golden("input_bound"), "input"), "forward")
    long = replace(report, run=replace(report.run, script="a/" * 60 + "train.py", status="running"))
    check = check_of(long, [replace(STATE, regions={0: "augment " * 20})])

    table, plain = check_table(check), check_table(check, ascii_only=True)

    assert max(map(len, table.splitlines())) <= 80
    assert plain.isascii()
    assert table.endswith("Not seen: input, forward. Tracing has stopped; the training goes on.\n")
