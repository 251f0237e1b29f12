"""Runs several ranks below a panel: the first one has the terminal, each other one a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyte")

from tests.processes import running
from tests.processes.terminal import Terminal, traceml
from traceml.report.output import read_output

pytestmark = [pytest.mark.process, pytest.mark.terminal]
RANKS = str(running.SCRIPTS / "starting_ranks.py")
TRAINING = str(running.SCRIPTS / "ranks_training.py")


def printed(folder: Path, rank: int) -> list[str]:
    return [text for _, text in read_output(folder, rank=rank, window=None, search=None).lines]


def test_the_first_rank_keeps_the_terminal_and_the_others_write_into_files(tmp_path: Path) -> None:
    seen = Terminal(traceml(RANKS), cwd=tmp_path)
    code = seen.finish()
    (folder,) = (tmp_path / "logs").iterdir()

    assert code == 0
    assert [row for row in seen.rows if row.startswith("rank ")] == [
        "rank 0 prints, tty True",
        "rank 0 complains",
        "rank 0 heard asked",
    ]
    for rank in (1, 2):
        assert printed(folder, rank) == [
            f"rank {rank} prints, tty False",
            f"rank {rank} complains",
            f"rank {rank} heard asked",
        ]
        assert (folder / f"rank-{rank}.log").stat().st_mode & 0o777 == 0o600


def test_without_a_panel_all_ranks_print_where_they_would_without_us(tmp_path: Path) -> None:
    seen = Terminal(traceml("--mode=summary", RANKS), cwd=tmp_path)
    code = seen.finish()
    (folder,) = (tmp_path / "logs").iterdir()

    assert code == 0
    assert seen.everything.count("complains") == 3  # they print into one another, as without us
    assert not list(folder.glob("rank-*.log"))


@pytest.mark.torch
def test_the_last_lines_of_a_rank_that_died_are_shown_once_before_the_card(tmp_path: Path) -> None:
    words = ("--nproc-per-node=2", TRAINING, "--do=raise", "--rank=1", "--at=8", "--steps=12")
    seen = Terminal(traceml(*words), cwd=tmp_path, rows=40, columns=120)
    assert seen.until(lambda: seen.process.poll() is not None, patience_s=120)
    code = seen.finish()
    (folder,) = (tmp_path / "logs").iterdir()

    shown = [line for line in seen.everything.splitlines() if line.startswith("rank 1 | ")]
    assert code == 1
    assert shown[-1].endswith("ValueError: of the script's own")
    assert seen.everything.count("ValueError: of the script's own") == 1
    assert seen.everything.index("rank 1 | ") < seen.everything.index("TraceML · ")
    assert "what rank 0 prints is shown" in seen.everything
    assert printed(folder, 1)[-1].endswith("ValueError: of the script's own")
