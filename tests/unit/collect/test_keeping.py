"""Holds the keeping to its places: on a network file system the database is local, its copies are in the run folder."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Callable

import pytest

from tests.builders import step_ms
from traceml.collect import keeping as keeping_room
from traceml.collect.keeping import DATABASE, Keeping
from traceml.collect.network import is_network
from traceml.schema.records import Manifest
from traceml.store.reader import StoreReader

Mount = namedtuple("Mount", "mountpoint fstype")  # noqa: PYI024  # as psutil gives it


def manifest_of(folder: Path) -> Manifest:
    return Manifest(1, folder.name, "id", 0.0, 0, str(folder), "train.py", (), "/", "init", "host", "0", "3.11")


@pytest.fixture
def far_keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Keeping]:
    home = tmp_path / "run"
    home.mkdir()
    monkeypatch.setattr(keeping_room, "is_network", lambda folder: folder == home)
    return lambda: Keeping(home, manifest_of(home), max_bytes=1 << 20, noted=lambda _: None, home=home)


def num_steps(database: Path) -> int:
    reader = StoreReader(database)
    try:
        return len(reader.window(0).pieces)
    finally:
        reader.close()


def test_a_run_on_the_network_is_kept_here_and_ends_there(far_keeping: Callable[[], Keeping], tmp_path: Path) -> None:
    keeping = far_keeping()
    keeping.append(steps=[step_ms(forward=5)])
    while_running = keeping.folder
    keeping.close()

    assert while_running != tmp_path / "run"
    assert not while_running.exists()
    assert keeping.folder == tmp_path / "run"
    assert num_steps(tmp_path / "run" / DATABASE) == 1


def test_a_copy_goes_home_every_minute(
    far_keeping: Callable[[], Keeping], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping_room, "_COPY_S", 0.0)
    keeping = far_keeping()
    keeping.append(steps=[step_ms(forward=5)])

    assert num_steps(tmp_path / "run" / DATABASE) == 1
    keeping.close()


@pytest.mark.parametrize(("kind", "said"), [("nfs4", True), ("ext4", False), ("fuse.sshfs", True), ("tmpfs", False)])
def test_the_innermost_mount_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, said: bool) -> None:
    mounts = [Mount("/", "nfs" if kind in ("ext4", "tmpfs") else "ext4"), Mount(str(tmp_path), kind)]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts)

    assert is_network(tmp_path / "logs") is said
