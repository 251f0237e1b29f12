"""Tests what is read of the collector's word."""

from __future__ import annotations

import json
from pathlib import Path

from traceml.wire.node import DONE, Node, read_node, write_node


def test_what_is_written_is_read(tmp_path: Path) -> None:
    told = Node(DONE, 12, Path("/runs/a"), ("moved",), "BALANCED", 2)
    write_node(tmp_path, told)

    assert read_node(tmp_path) == told
    assert read_node(tmp_path).is_done


def test_the_collectors_word_is_read(tmp_path: Path) -> None:
    told = {"pid": 1, "state": "done", "folder": "/runs/a", "notes": ["moved"], "verdict": "BALANCED"}
    (tmp_path / "node.json").write_text(json.dumps(told))
    found = read_node(tmp_path)

    assert (found.is_done, str(found.folder), found.notes, found.verdict) == (True, "/runs/a", ("moved",), "BALANCED")


def test_a_damaged_word_is_no_word(tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"state": "done"}', '{"state": "done", "folder": 3, "notes": []}'):
        (tmp_path / "node.json").write_text(text)

        assert read_node(tmp_path) == Node()


def test_a_pid_that_is_none_is_not_believed(tmp_path: Path) -> None:
    for pid in (True, -1, "1", 1.5):
        told: dict[str, object] = {"pid": pid, "state": "running", "folder": "/runs/a", "notes": []}
        (tmp_path / "node.json").write_text(json.dumps(told))

        assert read_node(tmp_path).pid is None
