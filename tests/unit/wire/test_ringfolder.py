"""Holds the removal of ring folders to what is ours: whatever a manifest names, nothing else is ever deleted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ring_folders import ring_folder
from traceml.collect.recover import recover
from traceml.errors import RunError
from traceml.schema.records import Manifest
from traceml.wire.manifest import write_manifest
from traceml.wire.ringfolder import is_ring_folder, remove_ring_folder

FILES = (
    "12-0.ring",
    "12-1.ring.waiting",
    "node.json",
    "run",
    "lock",
    "collector.log",
    "report-12.json",
    "rank-0-0",
    "arrived",
    "check.txt",
    ".node.json.12",
)


def filled(folder: Path) -> Path:
    for name in FILES:
        (folder / name).write_text("x")
    return folder


def victim(parent: Path, name: str = "precious") -> Path:
    folder = parent / name
    (folder / "deep").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    (folder / "deep" / "file").write_text("x")
    (folder / "run").write_text("x")
    return folder


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_ring_folder_of_ours_is_removed_with_all_we_put_there(tmp_path: Path) -> None:
    folder = filled(ring_folder(tmp_path))

    assert is_ring_folder(folder)
    assert remove_ring_folder(folder)
    assert not folder.exists()


def test_what_somebody_else_put_into_it_stays(tmp_path: Path) -> None:
    folder = filled(ring_folder(tmp_path))
    (folder / "thesis.tex").write_text("x")
    (folder / "7-7.ring").mkdir()

    assert not remove_ring_folder(folder)
    assert files_of(folder) == ["7-7.ring", "thesis.tex"]


@pytest.mark.parametrize("name", ["precious", "0123456789abcdef", "traceml-0", "etc"])
def test_any_other_folder_is_left_alone_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    folder = victim(tmp_path, name)
    before = files_of(folder)

    assert not remove_ring_folder(folder)
    assert files_of(folder) == before


def test_a_link_to_another_folder_is_no_ring_folder(tmp_path: Path) -> None:
    folder = victim(tmp_path)
    root = tmp_path / f"traceml-{os.getuid()}"
    root.mkdir(mode=0o700)
    (root / "0123456789abcdef").symlink_to(folder)
    before = files_of(folder)

    assert not remove_ring_folder(root / "0123456789abcdef")
    assert files_of(folder) == before


def test_a_path_that_climbs_out_or_is_open_to_others_is_no_ring_folder(tmp_path: Path) -> None:
    folder = filled(ring_folder(tmp_path))
    (folder.parent / "x").mkdir()

    assert not is_ring_folder(folder.parent / "x" / ".." / folder.name)
    folder.chmod(0o755)
    assert not is_ring_folder(folder)


def test_a_run_that_names_a_foreign_folder_is_damaged_and_the_folder_untouched(tmp_path: Path) -> None:
    foreign = victim(tmp_path)
    before = files_of(foreign)
    run = tmp_path / "run"
    run.mkdir()
    blank = Manifest(1, "run", "id", 0.0, 0, "", "train.py", (), "/", "init", "host", "0", "3.11")
    write_manifest(run, replace(blank, ring_dir=str(foreign)))

    with pytest.raises(RunError) as caught:
        recover(run)

    assert caught.value.slug == "damaged-run"
    assert files_of(foreign) == before
