"""Shows that a fault of ours never reaches the training: counted, said once, its hook off when it repeats."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Mapping, Optional

import pytest

from tests.processes import running
from tests.trainings import ways

pytestmark = [pytest.mark.training, pytest.mark.torch]
SWEEP = ways.HERE / "faults" / "sweep.py"
NUM_STEPS = 33
#: The hook's name in the summary, by the module in which the fault was put.
HOOKS = {
    "loader": "input",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "checkpoint": "checkpoint",
    "collections": "gc",
}
#: Faults elsewhere, and the hook that has to answer for them.
PLACES = {
    "settings of a loader": "input",
    "serial of an iterator": "input",
    "samples of a batch": "input",
    "attaching": "forward",
    "keeping house": "house",
}


@cache
def sweep() -> tuple[Mapping[str, Mapping[str, Any]], Mapping[str, list[str]]]:
    """What each case printed, and its lines on stderr."""
    import tempfile

    done = ways.plain_python(Path(tempfile.mkdtemp(prefix="faults-")), SWEEP, ways.environment(strict=True))
    assert done.returncode == 0, done.stderr.decode()
    cases = {row["case"]: row for row in map(json.loads, done.stdout.decode().splitlines())}
    parts = [part.splitlines() for part in ("\n" + done.stderr.decode()).split("\n== ")[1:]]
    return cases, {part[0]: part[1:] for part in parts}


def summary_of(case: str) -> Optional[Mapping[str, Any]]:
    """`final_summary.json` of a case's run; None when there was no run."""
    folder = sweep()[0][case]["folder"]
    if folder is None:
        return None
    path = Path(folder) / "final_summary.json"
    assert running.until(path.exists)
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def faults_of(case: str) -> dict[str, tuple[int, bool]]:
    """How often each hook failed and whether it is off."""
    summary = summary_of(case)
    assert summary is not None
    return {fault["hook"]: (fault["count"], fault["off"]) for fault in summary["coverage"]["faults"]}


def test_the_training_is_the_same_under_every_fault() -> None:
    cases, _ = sweep()

    assert len(cases) > 30
    assert [name for name, row in cases.items() if row["found"] != cases["bare"]["found"]] == []


def test_without_a_fault_nothing_is_counted_and_nothing_said() -> None:
    assert faults_of("none") == {}
    assert [line for line in sweep()[1]["none"] if "fault of ours" in line] == []


@pytest.mark.parametrize("module", HOOKS)
@pytest.mark.parametrize("when", ["always", "close"])
def test_a_fault_that_repeats_switches_its_hook_off_and_no_other(module: str, when: str) -> None:
    case = f"{module} {when}"
    summary = summary_of(case)

    assert faults_of(case) == {HOOKS[module]: (3, True)}
    assert summary is not None
    assert summary["run"]["steps"] == NUM_STEPS


@pytest.mark.parametrize("module", HOOKS)
def test_a_single_fault_is_counted_and_its_hook_goes_on(module: str) -> None:
    assert faults_of(f"{module} once") == {HOOKS[module]: (1, False)}


@pytest.mark.parametrize("when", ["always", "close"])
def test_a_step_that_cannot_be_marked_is_given_up(when: str) -> None:
    assert faults_of(f"step {when}")["step"] == (3, True)


@pytest.mark.parametrize("module", HOOKS)
def test_a_hook_that_cannot_be_installed_is_counted_and_the_others_are(module: str) -> None:
    summary = summary_of(f"install {module}")

    assert faults_of(f"install {module}") == {HOOKS[module]: (1, False)}
    assert summary is not None
    assert summary["run"]["steps"] == NUM_STEPS


@pytest.mark.parametrize("case", PLACES)
def test_a_fault_behind_a_hook_is_that_hooks(case: str) -> None:
    assert faults_of(case) == {PLACES[case]: (3, True)}


def test_a_hook_that_cannot_be_taken_off_does_not_keep_the_others() -> None:
    assert faults_of("taking a hook off") == {"backward": (1, False)}


@pytest.mark.parametrize("case", ["identity", "ring"])
def test_a_run_that_cannot_begin_is_said_in_one_line(case: str) -> None:
    assert summary_of(case) is None
    assert sweep()[1][case] == ["TraceML: this run is not recorded: injected"]


def test_a_fault_is_said_in_one_line_whatever_else_follows() -> None:
    said = {case: [line for line in lines if "fault of ours" in line] for case, lines in sweep()[1].items()}
    others = {case: [line for line in lines if not line.startswith("TraceML: ")] for case, lines in sweep()[1].items()}

    assert {case: lines for case, lines in said.items() if len(lines) > 1} == {}
    assert {case: lines for case, lines in others.items() if lines} == {}
