"""Shows what a training does in other people's tests: nothing, unless somebody asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import running

pytestmark = [pytest.mark.process, pytest.mark.torch]

TESTS = """
import pytest, torch, traceml

traceml.init()  # while the tests are collected


@pytest.fixture
def model():
    traceml.init()
    yield torch.nn.Linear(4, 2)
    traceml.shutdown()


@pytest.mark.parametrize("number", range(4))
def test_training(model, number):
    for batch in torch.utils.data.DataLoader(torch.ones(40, 4), batch_size=4):
        with traceml.trace_step(model):
            model(batch).sum().backward()
    assert model.weight.grad is not None
"""


def play(cwd: Path, *options: str, **environ: str) -> tuple[str, list[int]]:
    """What pytest said, and the steps of each run that came of it."""
    (cwd / "test_theirs.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, *options, "test_theirs.py"]
    result = subprocess.run(
        command, cwd=cwd, env=running.environment(**environ), capture_output=True, text=True, timeout=120, check=False
    )
    assert "4 passed" in result.stdout, result.stdout + result.stderr
    assert running.nothing_runs(cwd)
    logs = cwd / "logs"
    folders = sorted(logs.iterdir()) if logs.is_dir() else []
    return result.stdout + result.stderr, [running.Result(0, b"", "", folder).end[3] for folder in folders]


PYTEST = ("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider")
TWO_WORKERS = ("-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider")


@pytest.mark.parametrize(
    "options", [pytest.param(PYTEST, marks=pytest.mark.long), TWO_WORKERS], ids=["one process", "xdist"]
)
def test_under_pytest_nothing_is_recorded_and_nothing_is_said(tmp_path: Path, options: tuple[str, ...]) -> None:
    said, steps = play(tmp_path, *options)

    assert "TraceML" not in said
    assert steps == []


def test_a_disabled_tracer_is_inert_even_where_somebody_asks(tmp_path: Path) -> None:
    said, steps = play(tmp_path, *PYTEST, TRACEML_DISABLED="1", TRACEML_IN_PYTEST="1")

    assert "TraceML" not in said
    assert steps == []


def test_whoever_asks_gets_one_run_a_shutdown(tmp_path: Path) -> None:
    _, steps = play(tmp_path, *PYTEST, TRACEML_IN_PYTEST="1")

    assert steps == [10] * 4


@pytest.mark.long
def test_whoever_asks_in_two_workers_gets_the_runs_of_both(tmp_path: Path) -> None:
    _, steps = play(tmp_path, *TWO_WORKERS, TRACEML_IN_PYTEST="1")

    assert sorted(steps) == [10] * 4


def test_traceml_run_asks(tmp_path: Path) -> None:
    _, steps = play(tmp_path, str(running.SCRIPTS / "traceml_command.py"), "run", *PYTEST)

    assert sum(steps) == 40
