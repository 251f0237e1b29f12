"""Tests the copy of the output: its first and last bytes, and its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceml.launch.output import Log, shorten

if TYPE_CHECKING:
    from pathlib import Path


def test_a_short_output_is_kept_whole(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", head_bytes=100, tail_bytes=200)
    log.write(b"a\n" * 150)
    log.close()

    assert (tmp_path / "log").read_bytes() == b"a\n" * 150


def test_a_long_output_keeps_its_head_its_tail_and_how_much_is_missing(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", head_bytes=1000, tail_bytes=2000)
    lines = [b"line %06d\n" % number for number in range(3000)]
    for line in lines:
        log.write(line)
    log.close()

    whole, kept = b"".join(lines), (tmp_path / "log").read_bytes()
    head, _, rest = kept.partition(b"\n[TraceML: ")
    missing, _, tail = rest.partition(b" bytes left out here]\n")
    assert head == whole[: len(head)]
    assert len(head) >= 1000 - 1
    assert whole.endswith(tail)
    assert len(head) + int(missing) + len(tail) == len(whole)
    assert 2000 - 12 <= len(tail) <= 2000


def test_the_copy_is_private(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.close()

    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_log_that_another_process_began_is_gone_on_with(tmp_path: Path) -> None:
    lines = [b"line %06d\n" % number for number in range(3000)]
    log = Log(tmp_path / "log", head_bytes=1000, tail_bytes=2000)
    for line in lines[:1500]:
        log.write(line)
    log.leave()  # it was killed
    log = Log(tmp_path / "log", head_bytes=1000, tail_bytes=2000)
    for line in lines[1500:]:
        log.write(line)
    log.close()

    whole, kept = b"".join(lines), (tmp_path / "log").read_bytes()
    head, _, rest = kept.partition(b"\n[TraceML: ")
    missing, _, tail = rest.partition(b" bytes left out here]\n")
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + int(missing) + len(tail) == len(whole)
    assert len(kept) < 3100


def test_a_log_that_others_append_to_is_cut_in_its_place_and_says_by_how_much(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [b"line %06d\n" % number for number in range(3000)]
    with path.open("ab", buffering=0) as writer:
        for at in range(0, 3000, 100):
            writer.write(b"".join(lines[at : at + 100]))
            shorten(path, head_bytes=1000, tail_bytes=2000)

    whole, kept = b"".join(lines), path.read_bytes()
    head, _, rest = kept.partition(b"\n[TraceML: ")
    missing, _, tail = rest.partition(b" bytes left out here]\n")
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + int(missing) + len(tail) == len(whole)
    assert len(kept) < 5100
    assert [file.name for file in tmp_path.iterdir()] == ["log"]
