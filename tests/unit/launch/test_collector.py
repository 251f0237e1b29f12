"""Tests what a launcher and a rank read from the collector."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from traceml.launch.collector import Node, await_verdict, read_node

if TYPE_CHECKING:
    from pathlib import Path


def test_the_collectors_word_is_read(tmp_path: Path) -> None:
    told = {"pid": 1, "state": "done", "folder": "/runs/a", "notes": ["moved"], "verdict": "BALANCED"}
    (tmp_path / "node.json").write_text(json.dumps(told))
    found = read_node(tmp_path)

    assert (found.is_done, str(found.folder), found.notes, found.verdict) == (True, "/runs/a", ("moved",), "BALANCED")


def test_a_damaged_word_is_no_word(tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"state": "done"}', '{"state": "done", "folder": 3, "notes": []}'):
        (tmp_path / "node.json").write_text(text)

        assert read_node(tmp_path) == Node()


def test_a_verdict_that_does_not_come_in_time_is_none(tmp_path: Path) -> None:
    assert await_verdict(tmp_path, tmp_path, patience_s=0.02) is None
