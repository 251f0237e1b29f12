"""Asks a real collector for the panel, over the launcher's own pipes, while a real training runs."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Iterator, Optional

import pytest

from tests.processes import running
from tests.unit.views.terminal.panels import cells, plain
from traceml import settings
from traceml.launch.collector import Keeper
from traceml.launch.command import environment_of
from traceml.launch.place import Place, prepare_run
from traceml.schema.panel import PanelRequest

pytestmark = [pytest.mark.process, pytest.mark.terminal]
REQUEST = PanelRequest(120, 11, "true")
TRAINING = """\
import sys, time
time.sleep(float(sys.argv[1]))
import torch, traceml
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(16), index % 4
traceml.init(total_steps=5000)
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(Slow(), batch_size=4):
    with traceml.trace_step(model):
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


class Watched:
    """A training, its collector, and the newest rows of its panel."""

    def __init__(self, place: Place, script: Path, *arguments: str) -> None:
        environ = environment_of(place.folder, running.environment())
        self.keeper = Keeper(place.folder)
        self.script = subprocess.Popen([sys.executable, str(script), *arguments], env=environ)
        self.keeper.start()
        self.keeper.tell(script=self.script.pid)
        self.text = ""

    def rows(self, is_wanted: Callable[[str], bool], request: PanelRequest = REQUEST) -> Optional[tuple[str, ...]]:
        """Asks five times a second, until the rows are those that are wanted; None when they never come."""
        until = time.monotonic() + running.PATIENCE_S
        while time.monotonic() < until:
            self.keeper.ask_panel(request)
            time.sleep(0.2)
            while select.select(self.keeper.fds, [], [], 0)[0]:
                answer = self.keeper.answer()
                self.text += answer.text
                if (
                    answer.panel
                    and len(answer.panel) == request.rows
                    and is_wanted("\n".join(map(plain, answer.panel)))
                ):
                    return answer.panel
        return None

    def end(self) -> None:
        """Kills the training, and waits for the collector."""
        self.script.kill()
        self.script.wait()
        self.keeper.tell(exit={"code": 137, "signal": "SIGKILL"})
        running.until(lambda: self.keeper.is_done)
        self.keeper.let_go()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    """Starts the training after some seconds of silence."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    started: list[Watched] = []

    def start(silent_s: float = 0.0) -> Watched:
        place = prepare_run(
            settings.resolve(), script=str(script), arguments=[], started_by="traceml run", is_check=False
        )
        started.append(Watched(place, script, str(silent_s)))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_a_panel_grows_from_what_is_awaited_to_the_verdict_of_a_real_training(watched: Callable[..., Watched]) -> None:
    run = watched(silent_s=1.0)

    before = run.rows(lambda text: "waiting for the first step" in text)
    after = run.rows(lambda text: "INPUT BOUND" in text and "left" in text and "p95" in text)

    assert before is not None
    assert after is not None
    assert "of 5,000" in plain(after[0])
    assert all(cells(row) < 120 and row.endswith("\x1b[0m") for row in (*before, *after))
    assert "█ input" in "\n".join(map(plain, after))


def test_a_stopped_training_keeps_its_figures_and_says_since_when_no_step_has_ended(
    watched: Callable[..., Watched],
) -> None:
    run = watched()
    assert run.rows(lambda text: "INPUT BOUND" in text) is not None
    os.kill(run.script.pid, 19)

    held = run.rows(lambda text: "no step for" in text)

    os.kill(run.script.pid, 18)
    assert held is not None
    assert "INPUT BOUND" in plain(held[1])
    assert held[1].startswith("\x1b[2m")
    assert "stopped" in "\n".join(map(plain, held))


def test_plain_lines_and_panels_of_other_sizes_come_from_the_same_collector(watched: Callable[..., Watched]) -> None:
    run = watched()
    assert run.rows(lambda text: "INPUT BOUND" in text) is not None
    run.keeper.ask()

    small = run.rows(lambda text: "INPUT BOUND" in text and "TraceML: step" in run.text, PanelRequest(40, 4))

    assert small is not None
    assert all(cells(row) < 40 for row in small)
    assert run.text.startswith("TraceML: step ")
