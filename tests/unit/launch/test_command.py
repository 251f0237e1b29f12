"""Shows how a run's processes are reached, and which command lines cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceml.errors import CommandError
from traceml.launch.command import ENTRY, closed_by, command_of, environment_of

RUN = Path("/runs/one")


def paths(environ: dict[str, str]) -> str:
    return environment_of(RUN, environ)["PYTHONPATH"]


def test_our_folder_stands_first_and_what_was_there_behind_it_unchanged() -> None:
    assert paths({"PYTHONPATH": "/mine::/theirs"}) == f"{ENTRY}:/mine::/theirs"
    assert paths({"PYTHONPATH": ""}) == paths({}) == str(ENTRY)


def test_a_run_within_a_run_has_our_folder_once() -> None:
    assert paths({"PYTHONPATH": f"{ENTRY}:/mine"}) == f"{ENTRY}:/mine"


def test_the_run_is_told_and_nothing_else_is_changed() -> None:
    assert environment_of(RUN, {"HOME": "/h"}) == {"HOME": "/h", "TRACEML_RUN": "/runs/one", "PYTHONPATH": str(ENTRY)}


def test_the_folder_on_the_path_holds_the_file_that_python_looks_for() -> None:
    assert (ENTRY / "sitecustomize.py").is_file()


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("python -I train.py", "-I"),
        ("/usr/bin/python3.11 -uS train.py", "-S"),
        ("python -X dev -E -m pkg", "-E"),
        ("python -Wignore -I t.py", "-I"),
        ("python train.py -I", None),
        ("python -m pkg -S", None),
        ("python -cimportSys -I", None),
        ("python -u -- -I", None),
        ("bash -E job.sh", None),
        ("python", None),
    ],
)
def test_a_python_that_takes_nothing_from_outside_is_known_by_its_options(line: str, option: str | None) -> None:
    assert closed_by(line.split()) == option


def test_a_command_is_started_as_it_stands() -> None:
    assert command_of("command", "sh", ["-c", "true"], python="unused") == ["sh", "-c", "true"]


def test_a_command_that_is_not_there_has_the_shells_exit_code(tmp_path: Path) -> None:
    (tmp_path / "plain").touch(mode=0o600)

    with pytest.raises(CommandError) as missing:
        command_of("command", "no-such-command", [], python="unused")
    with pytest.raises(CommandError) as closed:
        command_of("command", str(tmp_path / "plain"), [], python="unused")

    assert (missing.value.code, closed.value.code) == (127, 126)


def test_several_ranks_are_started_by_torchrun_with_the_same_python(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    starter = ["py", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]

    assert command_of("script", str(script), ["-x"], python="py", num_ranks="4") == [*starter, str(script), "-x"]
    assert command_of("module", "job.train", [], python="py", num_ranks="4") == [*starter, "-m", "job.train"]
    assert command_of("module", "job.train", [], python="py") == ["py", "-m", "job.train"]
