"""Holds the one door to a run to its promises, on real run folders."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.ring_folders import ring_folder
from tests.unit.report.store_fakes import COMPLETED, MANIFEST, FakeStore, state_of, step_ms
from traceml.errors import RunError, UsageError
from traceml.report.build import build_report
from traceml.report.files import FILE, write_summary
from traceml.report.folder import DATABASE
from traceml.report.run import open_run
from traceml.schema.records import MemoryReading
from traceml.store.writer import StoreWriter
from traceml.wire.manifest import write_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from traceml.report.contract import Report
    from traceml.schema.records import Manifest, RunEnd, StepRecord


def usual(num_steps: int = 40) -> list[StepRecord]:
    return [step_ms(n, input=30, forward=10) for n in range(1, num_steps + 1)]


def run_folder(path: Path, *, manifest: Manifest = MANIFEST, end: RunEnd | None = COMPLETED) -> Path:
    """A run folder with manifest and database."""
    path.mkdir(parents=True, exist_ok=True)
    write_manifest(path, manifest)
    writer = StoreWriter(path / DATABASE)
    state = replace(state_of(), first_step=1, last_step=40)
    memory = [MemoryReading(0, n, n, "rss", 100 * n) for n in range(1, 41)]
    writer.append(steps=usual(), states=[state], memory=memory)
    if end is not None:
        writer.put_end(end)
    writer.close()
    return path


def some_report() -> Report:
    return build_report(FakeStore(usual()), MANIFEST, now_wall=0.0, now_ns=0)


def test_a_run_folder_answers_with_a_report_from_its_database(tmp_path: Path) -> None:
    run = open_run(run_folder(tmp_path / "vit"))
    report = run.report()

    assert run.name == "vit-small"
    assert (report.verdict.diagnosis, report.run.status, report.run.steps) == ("INPUT_BOUND", "completed", 40)
    assert report.run.folder == str(tmp_path / "vit")


def test_a_finished_run_answers_with_the_summary_that_was_written(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    written = replace(some_report(), verdict=replace(some_report().verdict, summary="Said once."))
    write_summary(folder, written)

    assert open_run(folder).report().verdict.summary == "Said once."


def test_a_range_is_built_even_when_a_summary_was_written(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    write_summary(folder, some_report())

    report = open_run(folder).report(window=(11, 20))

    assert (report.run.first_step, report.run.last_step) == (11, 20)


def test_a_damaged_summary_is_built_again_from_the_database_with_a_note(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    (folder / FILE).write_text('{"schema_version": 1, "run": {')

    assert any("damaged" in note for note in open_run(folder).report().coverage.notes)


def test_a_summary_alone_answers_the_report_and_says_what_else_is_not_there(tmp_path: Path) -> None:
    path = write_summary(tmp_path, some_report())

    for run in (open_run(path), open_run(tmp_path)):
        assert run.report() == some_report()
        for ask in (lambda: run.series("period"), run.output, lambda: run.report((1, 2))):  # noqa: B023  # asked at once
            with pytest.raises(RunError, match="summary alone") as caught:
                ask()
            assert caught.value.slug == "summary-only"


def test_the_summary_of_a_run_folder_opens_the_whole_run(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    path = write_summary(folder, some_report())

    assert open_run(path).series("period").points[0]


def test_a_folder_without_a_run_says_so_with_its_path(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(RunError, match="No run at") as caught:
            open_run(path)
        assert caught.value.slug == "no-run"


def test_a_run_without_a_database_says_so(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)

    with pytest.raises(RunError) as caught:
        open_run(tmp_path).report()

    assert caught.value.slug == "no-database"
    assert "run.db" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 4000])
def test_a_damaged_or_foreign_database_is_one_error_with_its_path(tmp_path: Path, content: bytes) -> None:
    folder = run_folder(tmp_path)
    (folder / DATABASE).write_bytes(content)

    with pytest.raises(RunError, match=r"run\.db") as caught:
        open_run(folder).report()

    assert caught.value.slug in ("damaged-database", "foreign-database")


def test_series_have_minimum_mean_and_maximum_in_ms_and_bytes(tmp_path: Path) -> None:
    run = open_run(run_folder(tmp_path))

    period, held = run.series("period", num_points=10), run.series("allocated")

    assert (period.unit, held.unit) == ("ms", "bytes")
    assert {(p.minimum, p.mean, p.maximum) for p in period.points[0]} == {(40.0, 40.0, 40.0)}
    assert (period.points[0][0].first_step, period.points[0][-1].last_step) == (1, 40)
    assert max(p.maximum for p in held.points[0]) == 4000
    assert run.series("h2d").points[0] == ()


def test_an_unknown_metric_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="inputs"):
        open_run(run_folder(tmp_path)).series("inputs")


def test_output_is_read_clean_and_can_be_searched_and_cut(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    log = "start\n 10%\r 20%\r100% done\n\x1b[31mloss\x1b[0m 0.5\x07\nEnd of Loss\n"
    (folder / "rank-0.log").write_bytes(log.encode() + b"\xff\n")

    run = open_run(folder)

    assert run.output().lines[:3] == ((1, "start"), (2, "100% done"), (3, "loss 0.5"))
    assert run.output(search="loss").lines == ((3, "loss 0.5"), (4, "End of Loss"))
    assert run.output(window=(2, 2)).lines == ((2, "100% done"),)


def test_output_that_was_not_captured_says_how_to_capture_it(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="--save-output") as caught:
        open_run(run_folder(tmp_path)).output(rank=3)

    assert caught.value.slug == "no-output"


def test_a_run_whose_collector_moved_is_read_where_it_is_and_says_so(tmp_path: Path) -> None:
    rings, moved = ring_folder(tmp_path), tmp_path / "elsewhere"
    manifest = replace(MANIFEST, ring_dir=str(rings))
    folder = run_folder(tmp_path / "run", manifest=manifest)
    (folder / "node-0").rename(moved)
    (tmp_path / "home").mkdir()
    moved.rename(tmp_path / "home" / "node-0")
    node = {"pid": 1, "state": "done", "folder": str(tmp_path / "home"), "notes": ["The disk was full."]}
    (rings / "node.json").write_text(json.dumps(node))

    report = open_run(folder).report()

    assert report.run.folder == str(tmp_path / "home")
    assert "The disk was full." in report.coverage.notes
    assert any("home" in note for note in report.coverage.notes)


def test_a_run_is_not_running_when_its_collectors_pid_now_is_a_strangers(tmp_path: Path) -> None:
    rings = ring_folder(tmp_path)
    folder = run_folder(tmp_path / "run", manifest=replace(MANIFEST, ring_dir=str(rings)), end=None)
    (rings / "node.json").write_text(json.dumps({"pid": 1, "state": "running", "folder": str(folder), "notes": []}))

    run = open_run(folder)

    assert not run.is_running
    assert run.report().run.status == "unknown"


@pytest.mark.parametrize("text", ["", "[1, 2]", "{" * 5000, '{"pid": NaN, "notes": 3, "folder": 7, "state": 1}'])
def test_a_node_file_that_says_nothing_sensible_is_passed_over(tmp_path: Path, text: str) -> None:
    rings = ring_folder(tmp_path)
    folder = run_folder(tmp_path / "run", manifest=replace(MANIFEST, ring_dir=str(rings)))
    (rings / "node.json").write_text(text)

    assert open_run(folder).report().run.status == "completed"


def test_a_run_is_running_while_its_collector_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rings = ring_folder(tmp_path)
    folder = run_folder(tmp_path / "run", manifest=replace(MANIFEST, ring_dir=str(rings)), end=None)
    node = {"pid": os.getpid(), "state": "running", "folder": str(folder), "notes": []}
    (rings / "node.json").write_text(json.dumps(node))
    # This test process plays the collector.
    monkeypatch.setattr("traceml.report.folder._COLLECTOR", b"python")

    assert open_run(folder).is_running
    assert open_run(folder).report().run.status == "running"


def test_a_run_that_just_started_asks_for_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rings = ring_folder(tmp_path)
    write_manifest(tmp_path, replace(MANIFEST, ring_dir=str(rings)))
    node = {"pid": os.getpid(), "state": "running", "folder": str(tmp_path), "notes": []}
    (rings / "node.json").write_text(json.dumps(node))
    monkeypatch.setattr("traceml.report.folder._COLLECTOR", b"python")  # this test process plays the collector

    with pytest.raises(RunError, match="nothing of it is stored yet") as caught:
        open_run(tmp_path).report()

    assert caught.value.slug == "no-database"


def test_a_running_report_is_brought_to_this_moment_and_one_that_is_over_is_left(tmp_path: Path) -> None:
    run = open_run(run_folder(tmp_path))
    over = run.report()

    assert run.refreshed(over) is over
    assert run.refreshed(replace(over, run=replace(over.run, status="running"))).run.steps == over.run.steps
