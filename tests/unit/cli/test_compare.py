"""Holds `traceml compare` to its promises: exit codes, shapes, and one line for anything that is no run."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.unit.report.compared_runs import BASE_MS, run_of, slower
from tests.unit.report.store_fakes import COMPLETED, MANIFEST
from traceml.cli.__main__ import main
from traceml.report.contract import Report
from traceml.report.files import write_summary
from traceml.report.folder import DATABASE
from traceml.store.writer import StoreWriter
from traceml.wire.manifest import write_manifest

SLOW = slower("input", 4.0)


def kept(folder: Path, report: Report) -> str:
    folder.mkdir()
    return str(write_summary(folder, report))


@pytest.fixture
def base(tmp_path: Path) -> str:
    return kept(tmp_path / "base", run_of(seed=1))


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return kept(tmp_path / "slow", run_of(SLOW, seed=2))


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("traceml: ")
    assert err.count("\n") == 1
    return err


def test_a_comparison_is_an_answer_whatever_it_says(base: str, slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", base, slow]) == 0

    out, err = capsys.readouterr()
    assert "REGRESSION: a typical step takes 20 % longer" in out
    assert "input +4.0" in out
    assert err == ""


def test_folders_and_names_under_logs_are_runs_too(tmp_path: Path, base: str, slow: str) -> None:
    assert main(["compare", str(Path(base).parent), "slow", "--logs-dir", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("mean_ms", "more", "code"),
    [(BASE_MS, {}, 0), (slower("input", -4.0), {}, 0), (SLOW, {}, 1), (slower("input", 0.36), {}, 3),
     (SLOW, {"world_size": 2}, 3), (SLOW, {"steps": 0}, 2)],
)  # fmt: skip
def test_the_gate_answers_by_exit_code(
    tmp_path: Path, base: str, mean_ms: dict[str, float], more: dict[str, Any], code: int
) -> None:
    other = kept(tmp_path / "other", run_of(mean_ms, seed=2, **more))

    assert main(["compare", base, other, "--fail-on", "regression"]) == code


def test_a_margin_opens_the_gate(base: str, slow: str) -> None:
    words = ["compare", base, slow, "--fail-on=regression", "--margin"]

    assert main([*words, "3%"]) == 1
    assert main([*words, "30 %"]) == 0
    assert main([*words, "21"]) == 3


@pytest.mark.parametrize("margin", ["", "-3%", "0", "0.03", "nan", "3%%", "inf", "90%", "three"])
def test_a_margin_that_is_none_is_a_mistake(
    base: str, slow: str, margin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--margin" in complaint(["compare", base, slow, f"--margin={margin}"], capsys)


def test_as_json_it_is_the_comparison_and_nothing_else(
    base: str, slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--json", base, slow]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["verdict"]["diagnosis"] == "REGRESSION"
    assert found["verdict"]["phase"] == "input"


def test_as_markdown_it_is_a_table(base: str, slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--markdown", base, slow]) == 0

    assert "| input | 8.0" in capsys.readouterr().out


def test_repeats_stand_on_both_sides_of_against(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def side(name: str, mean_ms: dict[str, float], first: int) -> list[str]:
        stamps = [f"2027-01-15T08:{first + 2 * at:02d}:00+00:00" for at in range(3)]
        return [
            kept(tmp_path / f"{name}{at}", run_of(mean_ms, seed=first * 10 + at, started_at=stamp))
            for at, stamp in enumerate(stamps)
        ]

    before, after = side("old", dict(BASE_MS), 0), side("new", SLOW, 1)

    assert main(["compare", *before, "--against", *after, "--fail-on", "regression"]) == 1
    assert "3 runs against 3, taking turns" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[], ["a"], ["a", "b", "c"], ["--against", "b"], ["a", "--against"], ["a", "b", "--fail-on", "weather"],
              ["a", "b", "--json", "--markdown"], ["a", "b", "--jsn"]],
)  # fmt: skip
def test_a_mistaken_command_line_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    complaint(["compare", *words], capsys)


def test_help_shows_the_loop_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--help"]) == 0

    out = capsys.readouterr().out
    assert "for i in 1 2 3 4 5; do" in out
    assert "3 undecided" in out


@pytest.mark.parametrize(
    "break_it",
    [
        lambda _: "",
        lambda _: "no JSON",
        lambda _: "[]",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"schema_version": 1', '"schema_version": 2'),
        lambda text: text.replace('"schema_version": 1', '"schema_version": 0'),
        lambda text: text.replace('"pct": 1.0', '"pct": NaN'),
        lambda text: text.replace('"pct": 1.0', '"pct": Infinity'),
        lambda text: text.replace('"pct": 1.0', '"pct": 1e999'),
        lambda text: text.replace('"layers": null', '"layers": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}"),
        lambda text: text.replace('"steps": 5', '"steps": -5'),
    ],
)
def test_a_file_that_is_no_summary_is_one_line(
    tmp_path: Path, base: str, break_it: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path(base).read_text(encoding="utf-8")
    assert break_it(text) != text
    bad = tmp_path / "bad.json"
    bad.write_text(break_it(text), encoding="utf-8")

    for words in (["compare", base, str(bad)], ["compare", str(bad), base]):
        assert "bad.json" in complaint(words, capsys) or "run-1" in complaint(words, capsys)


def test_what_is_no_run_is_one_line(tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "zero").symlink_to("/dev/zero")

    for name in ("empty", "pipe", "binary", "zero", "nothing"):
        complaint(["compare", base, str(tmp_path / name)], capsys)


def test_what_is_no_run_is_told_as_what_it_is(tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no JSON", encoding="utf-8")

    empty, text = (complaint(["compare", base, str(tmp_path / name)], capsys) for name in ("empty", "notes.txt"))

    assert "holds neither manifest.json nor final_summary.json" in empty
    assert "is not a summary of TraceML" in text


def test_a_run_against_itself_is_a_mistake_whatever_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, copy = (kept(tmp_path / name, run_of(seed=1, run_id="a")) for name in ("one", "copy"))

    for words in (["compare", one, one], ["compare", one, copy, "--fail-on", "regression"]):
        assert "'run-1' is on both sides" in complaint(words, capsys)


def test_a_run_folder_without_a_step_is_one_line(tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "stepless"
    folder.mkdir()
    write_manifest(folder, MANIFEST)
    writer = StoreWriter(folder / DATABASE)
    writer.put_end(COMPLETED)
    writer.close()

    assert "no steps" in complaint(["compare", base, str(folder)], capsys)


@pytest.mark.parametrize("filling", [b" ", b"[],", b'{"a":', b'"'])
def test_200_mb_of_anything_are_refused_in_bounded_memory(tmp_path: Path, base: str, filling: bytes) -> None:
    large = tmp_path / "large.json"
    chunk = filling * (1 << 18)
    with large.open("wb") as file:
        for _ in range(200_000_000 // len(chunk) + 1):
            file.write(chunk)
    limit = 400 << 20  # of address space, Python and all

    done = subprocess.run(
        [sys.executable, "-m", "traceml.cli", "compare", base, str(large)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    large.unlink()

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "damaged" in done.stderr


def test_comparing_loads_neither_torch_nor_a_database(base: str, slow: str) -> None:
    code = (
        "import sys; from traceml.cli.__main__ import main; main(sys.argv[1:]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'psutil')))"
    )

    assert subprocess.run([sys.executable, "-c", code, "compare", base, slow], check=False).returncode == 0
