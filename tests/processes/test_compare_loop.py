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
LOOP = re.compile(r"^( *)for i in .*?\n(?:\1.*\n)*?\1traceml compare .*?\n", re.MULTILINE)
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


@pytest.mark.long
@pytest.mark.process
@pytest.mark.torch
def test_the_loop_finds_a_step_that_became_twice_as_long(tmp_path: Path) -> None:
    """Three repeats of it: each is a real training. A sleep of 10 ms became one of 40."""
    (tmp_path / "old.py").write_text(SCRIPT.format(seconds=0.01), encoding="utf-8")
    (tmp_path / "new.py").write_text(SCRIPT.format(seconds=0.04), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "traceml"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {SCRIPTS / "traceml_command.py"} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    loop = re.sub(r" (?:4 5|old-4 old-5|new-4 new-5)(?=[ ;\n])", "", loop_in(told()))
    assert "old-3 --against new-1 new-2 new-3" in loop
    gate = f"{loop.rstrip()} --json --fail-on regression --margin 3%"

    done = subprocess.run(
        ["bash", "-c", gate],
        cwd=tmp_path,
        env=environment(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"]["diagnosis"] == "REGRESSION"
    assert found["verdict"]["phase"] == "in_step"
    assert "3 runs against 3, taking turns" in found["verdict"]["basis"]
    assert found["typical"]["change_pct"] > 50
