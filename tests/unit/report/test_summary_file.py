"""Holds reading and writing of final_summary.json, and the flat summary, to their promises."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

import pytest

from tests.unit.report.store_fakes import MANIFEST, FakeStore, state_of, step_ms
from traceml.errors import RunError
from traceml.report import files
from traceml.report.build import build_report
from traceml.report.files import FILE, read_summary, summary_text, write_summary
from traceml.report.flat import flat_summary
from traceml.schema.records import ProcessSample

if TYPE_CHECKING:
    from pathlib import Path

    from traceml.report.contract import Report


def some_report() -> Report:
    steps = [step_ms(n, input=30, forward=10) for n in range(1, 41)]
    return build_report(FakeStore(steps), MANIFEST, now_wall=0.0, now_ns=0)


def refused(path: Path) -> RunError:
    with pytest.raises(RunError) as caught:
        read_summary(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_is_written_is_read_back_the_same_and_only_the_user_can_read_it(tmp_path: Path) -> None:
    path = write_summary(tmp_path, some_report())

    assert read_summary(path) == some_report()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_names_with_every_kind_of_character_survive_the_file(tmp_path: Path) -> None:
    report = some_report()
    odd = replace(report, run=replace(report.run, name='mod\u00e8le \U0001f525 "\\\x1b\n', script="a\udcffb"))

    found = read_summary(write_summary(tmp_path, odd))

    assert found.run.name == odd.run.name
    assert found.run.script == "a\udcffb"


def test_short_rows_stand_on_one_line_each() -> None:
    lines = summary_text(some_report()).splitlines()

    assert sum(line.startswith('   "input": {"pct": 75.0, "mean_ms": 30.0') for line in lines) == 1


def test_a_file_that_is_not_there_is_no_summary(tmp_path: Path) -> None:
    assert refused(tmp_path / FILE).slug == "no-summary"
    assert refused(tmp_path).slug == "no-summary"  # a folder


@pytest.mark.parametrize(
    "text", ["[]", "3", "null", "{}", '{"schema_version": 1}', '{"schema_version": "1.4", "run": {}}',
             '{"schema_version": true, "run": {}}', '{"schema_version": 0, "run": {}, "verdict": {}}',
             '{"cards": [], "run_name": "of another tool"}'],
)  # fmt: skip
def test_json_of_others_is_foreign(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE
    path.write_text(text)

    assert refused(path).slug == "foreign-summary"


def test_a_newer_summary_is_newer_whatever_it_holds(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"schema_version": 99}')

    assert refused(tmp_path / FILE).slug == "summary-too-new"


def test_a_newer_summary_says_to_update(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text(summary_text(some_report()).replace('"schema_version": 1', '"schema_version": 2'))

    error = refused(path)

    assert error.slug == "summary-too-new"
    assert "Update TraceML" in str(error)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"steps": 40', '"steps": NaN'),
        lambda text: text.replace('"duration_s": 20.0', '"duration_s": Infinity'),
        lambda text: text.replace('"duration_s": 20.0', '"duration_s": 1e999'),
        lambda text: text.replace('"steps": 40', f'"steps": {"9" * 5000}'),
        lambda text: text.replace('"steps": 40', '"steps": "40"'),
        lambda text: text.replace('"steps": 40', '"steps": true'),
        lambda text: text.replace('"layers": null', f'"layers": {{"a": {"[" * 100}{"]" * 100}}}'),
        lambda text: text.replace('"layers": null', '"layers": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}"),
        lambda text: text.replace('"verdict"', '"verdikt"'),
    ],
)
def test_a_damaged_summary_is_one_error(tmp_path: Path, break_it: Callable[[str], str]) -> None:
    text = summary_text(some_report())
    broken = break_it(text)
    assert broken != text
    path = tmp_path / FILE
    path.write_text(broken)

    assert refused(path).slug == "damaged-summary"


def test_a_summary_of_more_than_the_cap_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_summary(tmp_path, some_report())
    monkeypatch.setattr(files, "MAX_READ_BYTES", 1000)

    assert refused(path).slug == "damaged-summary"


def test_keys_of_a_later_version_with_the_same_number_are_passed_over(tmp_path: Path) -> None:
    plain: dict[str, Any] = json.loads(summary_text(some_report()))
    plain["weather"] = {"sunny": True}
    plain["run"]["mood"] = "good"
    path = tmp_path / FILE
    path.write_text(json.dumps(plain))

    assert read_summary(path) == some_report()


def test_the_flat_summary_has_one_level_of_plain_values_under_traceml() -> None:
    flat = flat_summary(some_report())

    assert flat["traceml/diagnosis"] == "INPUT_BOUND"
    assert flat["traceml/step_time/dataloader_pct"] == 75.0
    assert flat["traceml/step_time/h2d_pct"] is None
    assert flat["traceml/step_time/period_p50_ms"] == pytest.approx(40, rel=0.01)
    assert flat["traceml/run/steps"] == 40
    assert all(name.startswith("traceml/") for name in flat)
    assert all(value is None or isinstance(value, (str, int, float)) for value in flat.values())


def test_the_wait_for_a_core_is_that_of_the_rank_that_waited_most_in_summary_and_flat_summary() -> None:
    steps = [step_ms(n, rank=rank, forward=10) for rank in (0, 1) for n in range(1, 41)]
    ranks = [state_of(rank, world_size=2) for rank in (0, 1)]
    waits = [ProcessSample(rank, at, run_delay_ns=at // (9 - 5 * rank)) for at in (0, 400_000_000) for rank in (0, 1)]

    report = build_report(FakeStore(steps, ranks, all_processes=waits), MANIFEST, now_wall=0.0, now_ns=0)

    assert report.process.waited_for_core_pct == 25.0
    assert flat_summary(report)["traceml/process/waited_for_core_pct"] == 25.0
    assert some_report().process.waited_for_core_pct is None


def test_a_regions_name_reaches_trackers_without_signs_they_refuse() -> None:
    steps = [step_ms(n, forward=10)._replace(region_ns=((1, 0),)) for n in range(1, 41)]
    store = FakeStore(steps, ranks=[replace(state_of(), regions={1: "a:b?{c}"})])

    flat = flat_summary(build_report(store, MANIFEST, now_wall=0.0, now_ns=0))

    assert "traceml/step_time/region/a/b__c__ms" in flat
