"""Holds what is opened as a file to regular files: nothing else makes a reader wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from traceml.wire.regular import is_regular, open_regular


def num_descriptors() -> int:
    """How many are open in this process; 0 where nothing tells."""
    return len(list(Path("/dev/fd").iterdir())) if Path("/dev/fd").is_dir() else 0


def test_a_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")

    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"
    assert is_regular(tmp_path / "file")


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")

    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"content"


def test_a_pipe_a_folder_and_a_device_are_refused_at_once_and_no_descriptor_stays_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    num_open = num_descriptors()

    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
        assert not is_regular(path)

    assert num_descriptors() == num_open


def test_what_is_not_there_is_no_regular_file(tmp_path: Path) -> None:
    assert not is_regular(tmp_path / "nothing")
