"""Runs the loop that README, docs and `traceml compare --help` show, as they show it, on real trainings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.processes.running import SCRIPTS, environment
from traceml.cli.arguments import Told, parse

ROOT = Path(__file__).resolve().parents[2]
LOOP = re.compile(r"^( *)t=.*?\n(?:\1.*\n)*?\1traceml compare .*?\\\n.*?\n", re.MULTILINE)
SCRIPT = """
import sys, time, torch, traceml
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(160, 16), torch.randn(160, 4))
traceml.init()
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    with traceml.trace_step(model):
        time.sleep({seconds})
        optimizer.zero_grad(set_to_none=True)
        (model(x) - y).square().mean().backward()
        optimizer.step()
"""


def loop_in(text: str) -> str:
    found = LOOP.search(text)
    assert found is not None
    return textwrap.dedent(found.group())


def told() -> str:
    found = parse(["compare", "--help"])
    assert isinstance(found, Told)
    return found.text


def test_the_same_loop_is_shown_in_every_place() -> None:
    places = [told(), *((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/compare.md"))]

    assert len({loop_in(place) for place in places}) == 1


def test_every_name_in_the_loop_is_new_each_time() -> None:
    names = re.findall(r"\b(?:old|new)-\S+", loop_in(told()))

    assert len(names) == 2 + 10
    assert all("-$t-" in name for name in names)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.torch
def test_the_loop_finds_a_step_that_became_longer_and_a_second_time_one_that_became_shorter(tmp_path: Path) -> None:
    """Three repeats of it, twice in one folder: each is a real training, with a sleep of 10 or of 40 ms a step."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "traceml"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {SCRIPTS / "traceml_command.py"} "$@"\n', encoding="utf-8")
    command.chmod(0o755)

    slower = in_turns(tmp_path, old_s=0.01, new_s=0.04)
    faster = in_turns(tmp_path, old_s=0.04, new_s=0.01)

    assert slower.returncode == 1, slower.stderr
    found = json.loads(slower.stdout)
    assert found["verdict"]["diagnosis"] == "REGRESSION"
    assert found["verdict"]["phase"] == "in_step"
    assert "3 runs against 3, taking turns" in found["verdict"]["basis"]
    assert found["typical"]["change_pct"] > 50
    assert faster.returncode == 0, faster.stderr
    found = json.loads(faster.stdout)
    assert (found["verdict"]["diagnosis"], found["verdict"]["phase"]) == ("IMPROVEMENT", "in_step")


def in_turns(folder: Path, *, old_s: float, new_s: float) -> subprocess.CompletedProcess[str]:
    """The loop as it is shown, with three repeats of five, as a gate."""
    for name, seconds in (("old", old_s), ("new", new_s)):
        (folder / f"{name}.py").write_text(SCRIPT.format(seconds=seconds), encoding="utf-8")
    loop = re.sub(r" (?:4 5|old-\$t-4 old-\$t-5|new-\$t-4 new-\$t-5)(?=[ ;\n])", "", loop_in(told()))
    assert "old-$t-3 \\\n" in loop
    assert loop.endswith("new-$t-3\n")
    return subprocess.run(
        ["bash", "-c", f"{loop.rstrip()} --json --fail-on regression --margin 3%"],
        cwd=folder,
        env=environment(PATH=f"{folder / 'bin'}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
