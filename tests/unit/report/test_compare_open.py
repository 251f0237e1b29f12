"""Holds what a comparison leaves open to what would close it: repeats, one host, a margin, a phase that is traced."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, Sequence

import pytest

from tests.unit.report.compared_runs import BASE_MS, BUSY, run_of, slower
from traceml.report.compare.comparison import compare
from traceml.report.compare.contract import Comparison
from traceml.report.compare.schema import comparison_text, json_schema
from traceml.report.contract import ProcessInfo, Report
from traceml.views.text.comparison import comparison_card, table
from traceml.views.text.markdown import comparison_markdown

AUGMENT = "region:augment"
STARVED = BUSY[0], replace(BUSY[1], waited_for_core_pct=41.0)


def pair(before: Report, after: Report, **more: Any) -> Comparison:
    return compare([before], [after], **more)


def in_turns(
    mean_ms: Mapping[str, float], *, side: int, num: int = 5, scale: Sequence[float] = (1.0,), **more: Any
) -> list[Report]:
    """Repeats that take turns with those of the other side, each by its own factor longer."""
    return [
        run_of(
            {name: ms * scale[at % len(scale)] for name, ms in mean_ms.items()},
            seed=20 * side + at,
            started_at=f"2027-01-15T08:{2 * at + side:02d}:00Z",
            **more,
        )
        for at in range(num)
    ]


@pytest.mark.parametrize("num", [1, 5, 20])
def test_where_only_the_allowance_for_hosts_is_in_the_way_one_host_is_asked_for_and_no_repeats(num: int) -> None:
    before = in_turns(BASE_MS, side=0, num=num)
    after = in_turns(slower("input", 1.2), side=1, num=num, hostname="node-2")

    verdict = compare(before, after).verdict

    assert (verdict.diagnosis, verdict.repeats) == ("UNDECIDED", None)
    assert verdict.next.startswith("run both on the same host: 8.0 % is allowed")


def test_a_change_beyond_the_allowance_for_hosts_can_be_repeated_into_a_verdict() -> None:
    wide = (1.0, 1.2, 0.85, 1.1, 0.9)
    before = in_turns(BASE_MS, side=0, scale=wide)
    after = in_turns(slower("input", 3.0), side=1, scale=wide, hostname="node-2")

    verdict = compare(before, after).verdict

    assert verdict.diagnosis == "UNDECIDED"
    assert verdict.repeats is not None
    assert verdict.repeats > 5


def test_repeats_that_did_not_take_turns_need_turns_and_not_more_of_them() -> None:
    before = in_turns(BASE_MS, side=0)
    after = [
        replace(report, run=replace(report.run, started_at=f"2027-01-15T09:{at:02d}:00Z"))
        for at, report in enumerate(in_turns(slower("input", 0.36), side=1))
    ]

    verdict = compare(before, after).verdict

    assert (verdict.diagnosis, verdict.repeats) == ("UNDECIDED", 5)
    assert "5 runs a side, taking turns" in verdict.next


def test_a_sure_change_within_the_margin_is_more_than_chance() -> None:
    found = pair(run_of(seed=1), run_of(slower("input", 0.5), seed=2), margin=0.03)

    assert found.typical is not None
    assert found.typical.low_pct is not None
    assert found.typical.low_pct > 0
    assert found.verdict.diagnosis == "UNDECIDED"
    assert "That is more than chance; whether it is more than 3.0 % is open." in found.verdict.summary
    assert "can be chance" not in found.verdict.summary


def test_same_means_all_of_the_interval_is_within_the_percent_that_is_said() -> None:
    """-2.97 % is within 3 %, though its logarithm is further from 0 than that of +3 %."""
    before = in_turns(BASE_MS, side=0, noise=0.0)
    after = in_turns(BASE_MS, side=1, noise=0.0, scale=(0.9703,))

    found = compare(before, after, margin=0.03)

    assert found.typical is not None
    assert found.typical.change_pct == pytest.approx(-2.97, abs=0.001)
    assert found.verdict.diagnosis == "SAME"


@pytest.mark.parametrize(("margin", "same", "change"), [(None, 3.0, 1.0), (0.05, 5.0, 5.0), (0.03, 3.0, 3.0)])
def test_both_margins_that_were_applied_are_told(margin: Any, same: float, change: float) -> None:
    found = json.loads(comparison_text(pair(run_of(seed=1), run_of(seed=2), margin=margin)))

    assert (found["margin_pct"], found["change_margin_pct"]) == (same, change)


@pytest.mark.parametrize(("num_before", "said"), [(1, "One run a side tells"), (3, "3 against 1 tell")])
def test_where_nothing_can_be_told_there_is_no_interval(num_before: int, said: str) -> None:
    starved = run_of(slower("input", 0.01), seed=9, beside=STARVED)

    found = compare([run_of(seed=at) for at in range(num_before)], [starved])

    plain = json.loads(comparison_text(found))
    assert f"{said} nothing of it." in found.verdict.summary
    assert {plain[step][end] for step in ("typical", "mean") for end in ("low_pct", "high_pct")} == {None}
    assert {row[end] for row in plain["phases"] for end in ("low_ms", "high_ms")} == {None}
    assert "[" not in comparison_card(found)
    assert "within chance" not in comparison_card(found)
    assert "+0.0 ms a step" in found.verdict.where or "-0.0" in found.verdict.where


def test_of_phases_that_changed_alike_none_is_named_and_none_is_called_chance() -> None:
    found = pair(run_of(seed=1), run_of({name: 1.08 * ms for name, ms in BASE_MS.items()}, seed=2))

    assert found.verdict.alike_pct is not None
    assert found.verdict.where.endswith(": every phase by about the same share")
    assert "within chance" not in comparison_card(found) + comparison_markdown(found)


@pytest.mark.parametrize(("is_new", "diagnosis"), [(True, "REGRESSION"), (False, "IMPROVEMENT")])
def test_a_region_that_one_side_alone_has_is_a_row_with_its_name(*, is_new: bool, diagnosis: str) -> None:
    runs = run_of(seed=1), run_of({**BASE_MS, AUGMENT: 4.6}, seed=2)

    found = pair(*(runs if is_new else runs[::-1]))

    assert (found.verdict.diagnosis, found.verdict.phase) == (diagnosis, AUGMENT)
    assert f": augment {'+' if is_new else '-'}4.6" in found.verdict.where
    row = next(row for row in table(found) if row.label == "augment")
    assert (row.before if is_new else row.after) == "not there"
    assert next(row.only for row in found.phases if row.phase == AUGMENT) == ("after" if is_new else "before")
    assert found.verdict.next == ("look at augment, which only the runs after have" if is_new else "nothing")
    assert any(note.startswith(f"augment: only {'after' if is_new else 'before'}") for note in found.notes)


def test_a_name_for_what_was_there_before_is_no_time_that_moved() -> None:
    before, after = (
        run_of({**BASE_MS, "in_step": 5.0}, seed=1),
        run_of({**BASE_MS, "in_step": 0.4, AUGMENT: 4.6}, seed=2),
    )

    assert pair(before, after).verdict.diagnosis == "SAME"


def test_a_region_beyond_the_most_that_a_run_can_name_is_unmeasured() -> None:
    full = {**BASE_MS, **{f"region:{at}": 0.4 for at in range(16)}}

    found = pair(run_of(full, seed=1), run_of({**BASE_MS, AUGMENT: 4.6}, seed=2))

    assert AUGMENT not in [row.phase for row in found.phases]


@pytest.mark.parametrize(("compilations", "is_row"), [(0, True), (None, False)])
def test_a_compilation_that_was_watched_for_and_never_came_is_0(compilations: Any, *, is_row: bool) -> None:
    before = run_of(seed=1, compilations=compilations)

    found = pair(before, run_of({**BASE_MS, "compile": 3.0}, seed=2, compilations=4))

    assert ("compile" in [row.phase for row in found.phases]) == is_row


@pytest.mark.parametrize("num", [1, 5])
def test_what_is_unmeasured_in_some_runs_asks_for_a_trace_and_promises_no_repeats(num: int) -> None:
    before, after = in_turns(BASE_MS, side=0, num=num), in_turns({**BASE_MS, "sync": 5.0}, side=1, num=num)

    verdict = compare(before, after).verdict

    assert (verdict.diagnosis, verdict.phase) == ("REGRESSION", None)
    assert (
        verdict.next == "trace both sides alike: all else holds waiting for ranks, which is not measured in every run"
    )


def test_an_unsure_pair_asks_for_repeats_in_words_that_one_can_read() -> None:
    noisy = BUSY[0], ProcessInfo(cpu_percent_mean=100.0, waited_for_core_pct=22.0)

    verdict = pair(run_of(seed=1), run_of(slower("input", 0.6), seed=2, beside=noisy)).verdict

    assert (verdict.diagnosis, verdict.repeats) == ("UNDECIDED", None)
    assert verdict.next.startswith("5 runs a side, taking turns, show how much runs differ: `traceml compare")
    assert verdict.next.endswith("; more than 50 may be needed to decide")


def test_every_field_of_the_json_stands_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "compare.md").read_text(encoding="utf-8").partition("## As JSON")[2]
    named = set(re.findall(r"`(?:verdict)?\.?(\w+)`", text))
    schema = json_schema()

    fields = {*schema["properties"], *(name for part in schema["$defs"].values() for name in part["properties"])}
    assert fields - named == {"verdict"}


def test_a_large_phase_that_may_have_moved_stands_in_the_sentence_under_its_name() -> None:
    """It did not move beyond chance, and the table shows it under its name."""
    waits = {**BASE_MS, "between_steps": 1.0}
    longer = {**waits, "input": 12.0, "between_steps": 1.42}

    found = pair(run_of(waits, seed=1, noise=0.0), run_of(longer, seed=2, noise=0.0))

    assert found.verdict.where.endswith(": input +4.00, between steps +0.42 (can be chance), all else +0.00")


def test_of_many_runs_that_are_not_of_one_kind_each_kind_names_a_run() -> None:
    before = in_turns(BASE_MS, side=0, num=3)
    after = [*in_turns(BASE_MS, side=1, num=2), run_of(seed=9, samples=16.0), run_of(seed=10, world_size=2)]

    reasons = compare(before, after).verdict.reasons

    assert reasons == (
        "other world sizes (1 in run-0 and 2 in run-10)",
        "other batches (16 in run-9 and 32 in run-0 samples a step)",
    )


def test_small_rows_that_are_folded_into_one_have_an_interval_as_wide_as_the_widest() -> None:
    small = {**BASE_MS, "in_step": 0.04, "between_steps": 0.05}

    found = pair(run_of(small, seed=1), run_of(small, seed=2))

    inside = [row for row in found.phases if row.phase in ("in_step", "between_steps")]
    folded = next(row for row in table(found) if row.label == "all else")
    low, high = min(row.low_ms or 0.0 for row in inside), max(row.high_ms or 0.0 for row in inside)
    assert low < 0 < high
    assert folded.interval == f"[{low:+.2f} to {high:+.2f}]"
