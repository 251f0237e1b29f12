"""Holds the grid of ranks to what it promises, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scenarios import ranks_grid
from tests.scenarios.ranks_grid import Cell

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_grid_has_the_runs_that_were_promised() -> None:
    cells = list(ranks_grid.cells())

    assert len(cells) == len(set(cells))
    assert sum(cell.ms == 5 and cell.place in ranks_grid.PLACES for cell in cells) == 60
    assert sum(cell.place in ranks_grid.UNIFORM for cell in cells) == 30
    assert len(cells) * 12 < 40 * 60


def test_one_wrong_run_at_twenty_ms_or_two_of_ten_at_five_break_it() -> None:
    five = {Cell("input", 5, seed): Cell("input", 5, seed).wanted for seed in range(10)}
    assert ranks_grid.broken(five) == []
    assert ranks_grid.broken({**five, Cell("input", 5, 0): "nobody"}) == []
    assert ranks_grid.broken({**five, Cell("input", 5, 0): "nobody", Cell("input", 5, 1): "in turn"}) != []
    assert ranks_grid.broken({Cell("gap", 20, 0): "rank 1 forward"}) == ["gap at 20 ms: 0 of 1"]
    assert ranks_grid.broken({Cell("none", 20, 0): "rank 1 input"}) == ["none at 20 ms: 0 of 1"]
    assert ranks_grid.broken({Cell("input", 2, 0): "nobody"}) == []


def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_runs = []

    def run(_traceml: str, cell: Cell) -> str:
        num_runs.append(cell)
        return cell.wanted

    monkeypatch.setattr(ranks_grid, "run_cell", run)
    assert ranks_grid.main(["--out", str(tmp_path / "grid.jsonl"), "--only", "gap"]) == 0
    assert len(num_runs) == 19
    assert ranks_grid.main(["--out", str(tmp_path / "grid.jsonl"), "--only", "gap"]) == 0
    assert len(num_runs) == 19
