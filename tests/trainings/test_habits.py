"""Shows that what people do beside a training comes out as it does without TraceML: copies, hooks, tools, workers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Mapping

import pytest

from tests.processes import running
from tests.trainings import ways

pytestmark = [pytest.mark.training, pytest.mark.torch]
HABITS = ways.HERE / "habits"
FILES = ("copies", "modules", "functions", "lifetimes", "tools", "workers", "compiled")
LINE = re.compile(r"^(\w+): (.*)$")


def names_of(file: str) -> list[str]:
    """The habits a file holds."""
    tree = ast.parse((HABITS / f"{file}.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if any(ast.unparse(d) == "habit" for d in node.decorator_list)]


def values_in(stdout: bytes) -> Mapping[str, str]:
    """What each habit gave, by name."""
    found = (LINE.match(line) for line in stdout.decode().splitlines())
    return {match[1]: match[2] for match in found if match}


@cache
def traced(file: str) -> running.Result:
    """Under plain python, with `init()` before and `shutdown()` behind; once a session."""
    cwd = Path(tempfile.mkdtemp(prefix="traced-"))
    done = ways.plain_python(cwd, HABITS / f"{file}.py", ways.environment(strict=False, TRACED="1"))
    (folder,) = (cwd / "logs").iterdir()
    assert running.until((folder / "final_summary.json").exists)
    return running.Result(done.returncode, done.stdout, done.stderr.decode(errors="replace"), folder)


@cache
def zero_code(file: str) -> running.Result:
    """Untouched, under `traceml run`; once a session."""
    cwd = Path(tempfile.mkdtemp(prefix="zero-code-"))
    environ = ways.environment(strict=False)
    return running.run(cwd, str(HABITS / f"{file}.py"), options=["--mode=summary"], environ=environ)


EACH = pytest.mark.parametrize(("file", "name"), [(file, name) for file in FILES for name in names_of(file)])


@EACH
def test_a_habit_comes_out_the_same_when_it_is_traced(file: str, name: str) -> None:
    alone = values_in(ways.bare(HABITS / f"{file}.py", strict=False).stdout)
    watched = values_in(traced(file).stdout)

    assert watched[name] == alone[name]


@pytest.mark.skipif(not ways.KNOWS_ZERO_CODE, reason=ways.WHY_PENDING)
@EACH
def test_a_habit_comes_out_the_same_without_a_line_of_code(file: str, name: str) -> None:
    alone = values_in(ways.bare(HABITS / f"{file}.py", strict=False).stdout)
    watched = values_in(zero_code(file).stdout)

    assert watched[name] == alone[name]


@pytest.mark.parametrize("file", FILES)
def test_meanwhile_every_step_was_recorded_and_nothing_of_ours_failed(file: str) -> None:
    alone, result = ways.bare(HABITS / f"{file}.py", strict=False), traced(file)
    said = re.search(r"^steps: (\d+) to (\d+)$", result.stderr, re.MULTILINE)

    assert (result.code, alone.code) == (0, 0)
    assert said is not None
    assert int(said[1]) <= result.summary["run"]["steps"] <= int(said[2])
    assert result.summary["coverage"]["faults"] == []
    assert "ResourceWarning" not in result.stderr


@pytest.mark.parametrize("name", [name for name in names_of("modules") if name.startswith("schedulers")])
def test_schedulers_give_no_warning(name: str) -> None:
    assert "Warning" not in values_in(traced("modules").stdout)[name]


@pytest.mark.parametrize("name", names_of("lifetimes"))
def test_with_the_collector_off_nothing_is_kept(name: str) -> None:
    value = values_in(traced("lifetimes").stdout)[name]

    assert not re.search(r"'(batch|graph|inner|iterator|loader|data|loss|model|optimizer|output|parameter)'", value)
    assert "False" not in value


@pytest.mark.parametrize("name", [name for name in names_of("copies") if "bytes" in name or "own_state" in name])
def test_files_and_pickles_hold_nothing_of_ours(name: str) -> None:
    value = values_in(traced("copies").stdout)[name]

    assert "traceml" not in value
    assert "Error" not in value


def test_a_model_saved_in_a_traced_step_loads_where_traceml_cannot_be_imported() -> None:
    cwd = traced("copies").folder.parents[1]
    code = (
        "import sys; sys.modules['traceml'] = None\n"
        "import torch\n"
        "saved = torch.load('inside.pt', weights_only=False)\n"
        "saved['optimizer'].step()\n"
        "print(saved['model'](torch.ones(1, 8)).shape, torch.load('after.pt', weights_only=False)[0].weight.shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "torch.Size([1, 2]) torch.Size([16, 8])\n"), done.stderr
