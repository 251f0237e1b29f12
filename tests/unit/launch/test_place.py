"""Tests the run's place: names, private folders, what the manifest may hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from traceml.errors import RunError
from traceml.launch import place
from traceml.schema.names import safe_name
from traceml.settings import Settings
from traceml.wire.manifest import read_manifest
from traceml.wire.ringfolder import RUN


@pytest.fixture(autouse=True)
def _private_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rings of these tests lie in the test's own folder."""
    monkeypatch.setattr(place, "_SHARED_MEMORY", tmp_path / "shm")
    (tmp_path / "shm").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))


def prepared(tmp_path: Path, name: str | None = None) -> place.Place:
    settings = Settings(logs_dir=str(tmp_path / "logs"), run_name=name)
    return place.prepare_run(settings, script="dir/train.py", arguments=["--lr", "1"], started_by="traceml run")


def test_a_run_gets_two_private_folders_and_a_manifest(tmp_path: Path) -> None:
    made = prepared(tmp_path)

    assert made.folder.name.startswith("train-")
    assert made.folder.stat().st_mode & 0o777 == 0o700
    assert Path(made.manifest.ring_dir).stat().st_mode & 0o777 == 0o700
    assert read_manifest(made.folder) == made.manifest
    assert made.notes == ()


def test_the_ring_folder_knows_its_run(tmp_path: Path) -> None:
    made = prepared(tmp_path)

    assert (Path(made.manifest.ring_dir) / RUN).read_text() == str(made.folder)


def test_a_given_name_that_exists_is_refused_with_the_next_free_one(tmp_path: Path) -> None:
    prepared(tmp_path, "mine")
    with pytest.raises(RunError, match="'mine-2'") as caught:
        prepared(tmp_path, "mine")

    assert caught.value.slug == "run-exists"
    assert len(list((tmp_path / "shm" / f"traceml-{os.getuid()}").iterdir())) == 1


def test_a_default_name_is_always_free(tmp_path: Path) -> None:
    names = {prepared(tmp_path).folder.name for _ in range(5)}

    assert len(names) == 5


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("a/b", "a-b"),
        ("../../etc", "etc"),
        ("größe 大", "größe-大"),
        ("..", "run"),
        ("x" * 300, "x" * 100),
        ("-rf", "rf"),
    ],
)
def test_a_name_is_one_path_component(given: str, made: str) -> None:
    assert safe_name(given) == made


def test_a_logs_folder_that_is_a_file_moves_the_run_and_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    made = prepared(tmp_path)

    assert made.folder.is_relative_to(tmp_path / "tmp")
    assert made.folder.parent.stat().st_mode & 0o777 == 0o700
    assert len(made.notes) == 1
    assert str(made.folder) in made.notes[0]


def test_a_link_in_place_of_our_ring_root_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "trap").mkdir()
    (tmp_path / "shm" / f"traceml-{os.getuid()}").symlink_to(tmp_path / "trap")
    made = prepared(tmp_path)

    assert list((tmp_path / "trap").iterdir()) == []
    assert Path(made.manifest.ring_dir).stat().st_mode & 0o777 == 0o700


def test_a_ring_root_that_others_may_read_is_closed(tmp_path: Path) -> None:
    root = tmp_path / "shm" / f"traceml-{os.getuid()}"
    root.mkdir()
    root.chmod(0o777)
    prepared(tmp_path)

    assert root.stat().st_mode & 0o777 == 0o700


def test_without_room_in_shared_memory_the_rings_lie_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_ROOM_BYTES", 1 << 60)
    made = prepared(tmp_path)

    assert made.manifest.ring_dir.startswith(str(tmp_path / "tmp"))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--token", "x", "--lr", "1"], ["--token", "***", "--lr", "1"]),
        (["--api-key=x"], ["--api-key=***"]),
        (["wandb.api_key=x"], ["wandb.api_key=***"]),
        (["--password", "-x"], ["--password", "***"]),
        (["--use-secrets", "--lr", "1"], ["--use-secrets", "--lr", "1"]),
        (["--store", "https://me:pw@host/x"], ["--store", "https://***@host/x"]),
        (["--epochs=3", "train"], ["--epochs=3", "train"]),
    ],
)
def test_arguments_that_sound_secret_are_masked(given: list[str], kept: list[str]) -> None:
    assert list(place.masked_arguments(given)) == kept


def test_the_environment_is_an_allow_list_with_masks() -> None:
    environ = {"NCCL_DEBUG": "INFO", "HOME": "/root", "SLURM_JOB_TOKEN": "x", "RANK": "0", "AWS_SECRET": "x"}

    assert place.allowed_environment(environ) == {"NCCL_DEBUG": "INFO", "RANK": "0", "SLURM_JOB_TOKEN": "***"}
