"""Holds `traceml`, `view`, `runs` and `--version` to their promises, on real run folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Callable

import pytest

import traceml
from tests.ring_folders import ring_folder
from tests.unit.report.store_fakes import COMPLETED, MANIFEST
from tests.unit.report.test_open_run import run_folder, some_report
from traceml.cli import version
from traceml.cli.__main__ import main
from traceml.report.files import write_summary
from traceml.views.text.columns import width_of
from traceml.wire.manifest import write_manifest

if TYPE_CHECKING:
    from pathlib import Path

LOOK = (
    "import sys; from traceml.cli.__main__ import main; "
    "code = main(sys.argv[1:]); print(sorted(sys.modules), file=sys.stderr); sys.exit(code)"
)
HEAVY = ("torch", "sqlite3", "psutil", "numpy", "importlib.metadata", "traceml.report", "traceml.api", "asyncio")


def test_view_shows_the_card_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "vit")

    assert main(["view", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("TraceML · vit-small · 40 steps in 20.0 s · 1 rank · completed")
    assert "INPUT BOUND (critical)" in out
    assert err == ""


def test_view_finds_a_name_under_the_logs_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder(tmp_path / "vit")

    assert main(["view", "vit", "--logs-dir", str(tmp_path)]) == 0
    assert "INPUT BOUND" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["x" * 300, "y/" * 3000, "a\0b", "{" * 40_000, "~nobody-has-this-name/run"], ids=len)
def test_a_name_that_no_file_can_have_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    for words in (["view", name], ["compare", name, name]):
        assert main([*words, "--logs-dir", str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert "No run '" in err
        assert len(err) < 600


def test_view_reads_a_summary_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(write_summary(tmp_path, some_report()))]) == 0
    assert "INPUT BOUND" in capsys.readouterr().out


def test_view_as_json_prints_the_summary_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "--json", str(run_folder(tmp_path))]) == 0

    assert json.loads(capsys.readouterr().out)["verdict"]["diagnosis"] == "INPUT_BOUND"


def test_view_of_a_run_that_is_not_there_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder(tmp_path / "vit-small")

    assert main(["view", "vit-smal", "--logs-dir", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "'vit-smal'" in err
    assert "did you mean 'vit-small'?" in err


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 99, "run": {}}', "\x1b[31m", "nul\x00"])
def test_view_of_any_other_file_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)

    assert main(["view", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("traceml: ")
    assert err.count("\n") == 1
    assert "other.json" in err


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", ["final_summary.json", "manifest.json", "node-0/run.db", "node.json"])
def test_what_is_no_file_in_a_files_place_holds_neither_view_nor_runs_up(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    rings = ring_folder(tmp_path)
    folder = run_folder(tmp_path / "logs" / "odd", manifest=replace(MANIFEST, ring_dir=str(rings)))
    place = rings / name if name == "node.json" else folder / name
    place.unlink(missing_ok=True)
    make(place)

    for words in (["view", "odd"], ["view", str(folder / "final_summary.json")], ["runs"]):
        command = [sys.executable, "-m", "traceml.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, cwd=tmp_path)

        assert done.returncode in (0, 2)
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") <= 1


def test_a_summary_that_is_no_file_is_built_again_from_the_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path)
    (folder / "final_summary.json").mkdir()

    assert main(["view", str(folder)]) == 0
    assert "final_summary.json cannot be read; this was built again" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("key", "value"), [("created_at", -1.0), ("created_at", 1e300), ("created_ns", 10**400)])
def test_a_manifest_with_a_time_that_cannot_be_is_damaged_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: object
) -> None:
    path = run_folder(tmp_path) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))

    assert main(["view", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "damaged manifest.json" in err


def test_a_mistake_names_the_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["veiw"]) == main(["run", "--moed=cli", "t.py"]) == 2

    first, second = capsys.readouterr().err.splitlines()
    assert first == "traceml: unknown command 'veiw'; did you mean view?"
    assert second == "traceml: run: unknown option '--moed'; did you mean --mode?"


def test_an_option_that_is_like_none_is_not_answered_with_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--bogus", "t.py"]) == main(["run", "--zzz"]) == main(["--bogus"]) == 2

    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "good"), [("../../evil", "evil"), (".", "run"), ("x" * 300, "x" * 100), ("a/b", "a-b"), ("-rf", "rf")]
)
def test_a_run_name_that_no_folder_can_have_is_refused_with_one_that_is_good(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    good: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("")

    assert main(["run", f"--run-name={name}", "t.py"]) == 2

    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert repr(name)[:20] in err
    assert err.endswith(f"Use '{good}'.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["t.py"]


def test_view_of_the_logs_folder_says_how_to_see_the_runs_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder(tmp_path / "logs" / "one")
    run_folder(tmp_path / "logs" / "two")

    assert main(["view", str(tmp_path / "logs")]) == 2

    err = capsys.readouterr().err
    assert "holds 2 runs" in err
    assert f"traceml runs --logs-dir {tmp_path / 'logs'}" in err
    assert f"traceml view {tmp_path / 'logs' / 'two'}" in err


def test_a_path_that_would_drive_the_terminal_is_shown_without_its_signs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "\x1b]0;title\x07\nnew line"]) == 2

    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_view_tells_the_end_of_a_run_that_was_left_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(run_folder(tmp_path, end=None))]) == 0

    assert "ended unseen after 40 steps" in capsys.readouterr().out


def test_runs_lists_the_newest_first_and_says_why_one_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder(tmp_path / "older", manifest=replace(MANIFEST, created_at=MANIFEST.created_at - 3600))
    killed = replace(COMPLETED, status="killed", ended_by="signal SIGKILL")
    run_folder(tmp_path / "newer", end=killed)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    (tmp_path / "not-a-run").mkdir()

    assert main(["runs", "--logs-dir", str(tmp_path)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["name", "newer", "older", "broken"]
    assert "killed" in lines[1]
    assert "INPUT BOUND" in lines[1]
    assert "damaged manifest.json" in lines[3]


def test_runs_of_an_empty_folder_says_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--logs-dir", str(tmp_path)]) == 0

    out, err = capsys.readouterr()
    assert out == ""
    assert "traceml run train.py" in err


def test_a_run_without_a_database_stands_in_the_list_with_its_trouble(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    write_manifest(tmp_path / "empty", MANIFEST)

    assert main(["runs", "--logs-dir", str(tmp_path)]) == 0
    assert "run.db" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["run", "--help"], ["attach", "--help"], ["view", "--help"], []]
)
def test_help_and_version_import_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LOOK, *words], capture_output=True, text=True, check=True)

    loaded = done.stderr.splitlines()[-1]
    assert not [name for name in HEAVY if f"'{name}'" in loaded]
    assert "traceml" in done.stdout


@pytest.mark.parametrize(
    ("words", "code"), [("view --json {} | true", "141"), ("view {} 1>&-", "0"), ("runs | true", "0")]
)
def test_a_closed_stdout_is_quiet(tmp_path: Path, words: str, code: str) -> None:
    folder = run_folder(tmp_path)
    line = f'"{sys.executable}" -m traceml.cli {words.format(folder)}; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.stdout.strip() == code
    assert done.stderr in ("", "No runs in 'logs'. Start one: traceml run train.py\n")


def test_ctrl_c_is_exit_code_130_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("traceml.cli.view.view", interrupted)

    assert main(["view", "x"]) == 130


def test_an_ascii_stdout_gets_the_plain_card(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    environ = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "traceml.cli", "view", str(folder)], capture_output=True, check=True, env=environ
    )

    assert done.stdout.isascii()
    assert b"####" in done.stdout


def test_no_line_of_a_card_but_a_path_is_wider_than_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path / ("a" * 100) / ("b" * 100))

    assert main(["view", str(folder)]) == 0
    *lines, path = capsys.readouterr().out.splitlines()
    assert max(width_of(line) for line in lines) <= 80
    assert path.strip() == f"{folder}/final_summary.json"


def distribution(folder: Path, name: str, *, owns: str) -> None:
    info = folder / f"{name}.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(f"{owns},sha256=x,1\n{name}.dist-info/RECORD,,\n")


def test_the_version_is_one_line_when_we_are_alone(tmp_path: Path) -> None:
    distribution(tmp_path, f"traceml_ai-{traceml.__version__}", owns="traceml/__init__.py")
    distribution(tmp_path, "traceml_helper-1.0", owns="traceml_helper/__init__.py")

    assert version.version_text([str(tmp_path), "/nowhere"]).count("\n") == 0


@pytest.mark.parametrize("name", ["traceml-1.1.0", "traceml_ai-0.5.0"])
def test_a_second_distribution_that_owns_our_folder_is_named_with_the_repair(tmp_path: Path, name: str) -> None:
    distribution(tmp_path, f"traceml_ai-{traceml.__version__}", owns="traceml/__init__.py")
    distribution(tmp_path, name, owns="traceml/__init__.py")

    line = version.second_owner([str(tmp_path)])

    assert line is not None
    assert name.replace("-", " ") in line
    assert "pip uninstall" in line
    assert "traceml-ai" in line
