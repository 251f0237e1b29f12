"""Shows TraceML in a real Jupyter kernel: a cell begins the run, a cell shows its card, and it ends with the kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.processes import running

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

pytestmark = [pytest.mark.process, pytest.mark.torch]

BEGIN = """
import torch, traceml
model = torch.nn.Linear(4, 2)
traceml.init()
"""
TRAIN = """
for batch in torch.utils.data.DataLoader(torch.ones(240, 4), batch_size=4):
    with traceml.trace_step(model):
        model(batch).sum().backward()
"""


def play(cwd: Path, monkeypatch: pytest.MonkeyPatch, *cells: str) -> Any:
    """The notebook after all its cells were run, those that raise too."""
    for name in [name for name in os.environ if name.startswith(("TRACEML", "PYTEST"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(running.SOURCE))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(cwd)}}
    return nbclient.NotebookClient(notebook, timeout=60, allow_errors=True, resources=resources).execute()


def said(notebook: Any) -> list[str]:
    """What stood on stderr, cell by cell."""
    return ["".join(o.get("text", "") for o in cell.outputs if o.get("name") == "stderr") for cell in notebook.cells]


@pytest.mark.filterwarnings("ignore")  # jupyter's own, of sockets and event loops
@pytest.mark.long  # beside many others jupyter kills its kernel before it has ended
def test_a_notebook_shows_its_card_and_its_run_ends_with_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = (BEGIN, TRAIN, BEGIN, "raise ValueError('a typo')", "traceml.report()", "print(traceml.report())")

    notebook = play(tmp_path, monkeypatch, *cells)

    (folder,) = (tmp_path / "logs").iterdir()
    assert folder.name.startswith("notebook-")
    assert [said(notebook)[number].count("recording into") for number in (0, 2)] == [1, 0]
    shown, printed = (cell.outputs[0] for cell in notebook.cells[-2:])
    page = shown["data"]["text/html"]
    assert page.startswith("<pre style=")
    assert "60 steps" in page
    assert "<script" not in page
    assert "60 steps" in shown["data"]["text/plain"]
    assert "60 steps" in printed["text"]
    assert running.until((folder / "final_summary.json").exists)
    assert running.until(lambda: running.Result(0, b"", "", folder).end[0] == "completed")
    status, ended_by, _, steps = running.Result(0, b"", "", folder).end
    assert (status, ended_by, steps) == ("completed", "end", 60)
    assert running.nothing_runs(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_a_notebooks_run_ends_at_shutdown_and_the_next_init_begins_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = "traceml.shutdown()"

    notebook = play(tmp_path, monkeypatch, BEGIN, TRAIN, ending, "traceml.report()", BEGIN, TRAIN[:-1], ending)

    names = sorted((path.name for path in (tmp_path / "logs").iterdir()), key=len)
    assert names[1] == f"{names[0]}-2"
    assert "60 steps" in notebook.cells[3].outputs[0]["data"]["text/plain"]
    ends = [running.Result(0, b"", "", tmp_path / "logs" / name).end for name in names]
    assert [(status, steps) for status, _, _, steps in ends] == [("completed", 60)] * 2
