"""Follows a rank's log by its marks: only what is new, whatever is done to the file meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceml.errors import RunError
from traceml.report.output import ranks_with_output, read_printed

LOG = "rank-0.log"


def test_only_what_came_since_the_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(b"one\n")
    first = read_printed(tmp_path, rank=0, since=None, max_bytes=100)
    with (tmp_path / LOG).open("ab") as log:
        log.write(b"tw\xff")

    second = read_printed(tmp_path, rank=0, since=first.mark, max_bytes=100)

    assert (first.data, second.data) == (b"one\n", b"tw\xff")
    assert not second.is_anew
    assert read_printed(tmp_path, rank=0, since=second.mark, max_bytes=100).data == b""


def test_a_flood_is_read_from_its_end_and_what_was_skipped_is_counted(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(b"x" * 1000 + b"end")

    found = read_printed(tmp_path, rank=0, since=None, max_bytes=10)

    assert (found.data, found.num_skipped_bytes) == (b"x" * 7 + b"end", 993)


@pytest.mark.parametrize("is_same_file", [True, False])
def test_a_log_that_was_cut_is_read_anew(tmp_path: Path, *, is_same_file: bool) -> None:
    (tmp_path / LOG).write_bytes(b"long line\n")
    first = read_printed(tmp_path, rank=0, since=None, max_bytes=100)
    cut = tmp_path / (LOG if is_same_file else "neighbour")
    cut.write_bytes(b"short\n")
    cut.replace(tmp_path / LOG)

    second = read_printed(tmp_path, rank=0, since=first.mark, max_bytes=100)

    assert (second.data, second.is_anew) == (b"short\n", True)


def test_the_ranks_with_a_log_are_told_by_number_and_one_without_is_one_line(tmp_path: Path) -> None:
    for name in ("rank-10.log", "rank-2.log", "rank-x.log", "rank-3.log.old", f"rank-{'9' * 80}.log"):
        (tmp_path / name).write_bytes(b"")

    with pytest.raises(RunError, match="No output of rank 0") as caught:
        read_printed(tmp_path, rank=0, since=None, max_bytes=100)

    assert ranks_with_output(tmp_path) == (2, 10)
    assert caught.value.slug == "no-output"
