"""Shows which processes are ranks of one job, and that the first of them makes its run for all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from traceml.launch import gathering, place
from traceml.launch.gathering import gather, job_of
from traceml.launch.place import Place, prepare_run
from traceml.settings import Settings
from traceml.wire.node import DONE, Node, write_node
from traceml.wire.ringfolder import remove_ring_folder

RANK = {"WORLD_SIZE": "4", "RANK": "1", "TORCHELASTIC_RUN_ID": "a"}
linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="told by /proc")


@linux
def test_ranks_of_one_parent_are_one_job_and_a_single_process_is_none() -> None:
    parent = os.getppid()
    job = job_of(RANK, parent)

    assert job is not None
    assert job == job_of({**RANK, "RANK": "3"}, parent)
    assert job != job_of({**RANK, "TORCHELASTIC_RUN_ID": "b"}, parent)
    assert job != job_of(RANK, os.getpid())
    assert job_of({}, parent) is None
    assert job_of({"WORLD_SIZE": "1", "RANK": "0"}, parent) is None
    assert job_of(RANK, 2**22 - 3) is None


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / f"traceml-{os.getuid()}"
    monkeypatch.setattr(place, "ring_roots", lambda: (root,))
    return root


def test_many_ranks_at_once_make_one_run(tmp_path: Path, roots: Path) -> None:
    found: list[tuple[Place, bool]] = []

    def make() -> Place:
        return prepare_run(Settings(logs_dir=str(tmp_path / "logs")), script="t.py", arguments=(), started_by="init")

    threads = [threading.Thread(target=lambda: found.append(gather("0" * 16, make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(is_first for _, is_first in found) == 1
    assert len({one.folder for one, _ in found}) == 1
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_a_run_that_is_over_is_not_joined_and_its_meeting_place_goes(tmp_path: Path, roots: Path) -> None:
    def make() -> Place:
        return prepare_run(Settings(logs_dir=str(tmp_path / "logs")), script="t.py", arguments=(), started_by="init")

    first, _ = gather("0" * 16, make)
    write_node(Path(first.manifest.ring_dir), Node(DONE, 1, first.folder))
    second, is_first = gather("0" * 16, make)
    assert is_first
    assert second.folder != first.folder

    remove_ring_folder(Path(second.manifest.ring_dir))
    gather("1" * 16, make)
    assert [path.name for path in roots.glob("job-*")] == ["job-" + "1" * 16]
    assert gathering._joined(b"/nowhere/at/all") is None
