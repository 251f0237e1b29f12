"""Tests what is shown of a rank that died: the end of its own output, once, unable to drive the terminal."""

from __future__ import annotations

import json
from pathlib import Path

from traceml.launch.last_words import last_words


def summary(folder: Path, *events: tuple[str, int]) -> Path:
    path = folder / "final_summary.json"
    path.write_text(json.dumps({"events": [{"kind": kind, "rank": rank} for kind, rank in events]}))
    return path


def test_the_last_twenty_lines_of_the_first_that_died_stand_behind_its_name(tmp_path: Path) -> None:
    (tmp_path / "rank-2.log").write_text("".join(f"line {number}\n" for number in range(100)))
    (tmp_path / "rank-1.log").write_text("another\n")
    found = last_words(tmp_path, summary(tmp_path, ("first death", 2), ("death", 1)))

    assert found == [f"rank 2 | line {number}" for number in range(80, 100)]


def test_of_a_progress_bar_the_last_state_is_shown_and_of_escapes_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank-1.log").write_bytes(b"\r 1%\r 2%\n\x1b[31mred\x1b[0m\x1b]0;title\x07 \x1bc\x9b\n")

    assert last_words(tmp_path, summary(tmp_path, ("first death", 1))) == ["rank 1 |  2%", "rank 1 | red \ufffd"]


def test_what_was_seen_as_it_came_is_not_shown_again(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("shown already\n")

    assert last_words(tmp_path, summary(tmp_path, ("first death", 0))) == []
    assert last_words(tmp_path, summary(tmp_path, ("checkpoint", 1))) == []
    assert last_words(tmp_path, summary(tmp_path, ("first death", 3))) == []
    assert last_words(tmp_path, tmp_path / "none.json") == []
