"""Shows that the training goes on, and the user is told once, whatever is wrong around it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import pytest

from tests.processes import running
from tests.processes.running import RAW, RING_TRAINING

pytestmark = pytest.mark.process
SCRIPT = str(RING_TRAINING)
READY = RAW + b"ready\n"
TRAINED = READY + b"trained\n"


@contextmanager
def small_disk(path: Path, options: str) -> Iterator[Path]:
    """A tmpfs of its own; the test is skipped where mounting is not allowed."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def kept_elsewhere(result: running.Result) -> Path:
    """The folder that stderr names once; the card wraps long lines."""
    found = re.findall(r"iskeptin'([^']*)'", re.sub(r"\s", "", result.stderr))
    assert len(found) == 1, result.stderr
    return Path(found[0])


def test_a_read_only_logs_folder_moves_the_run_to_a_private_place(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m,ro") as disk:
        result = running.run(tmp_path, SCRIPT, "40", "end", options=["--logs-dir", str(disk / "logs")])

        folder = kept_elsewhere(result)
        assert (result.code, result.stdout) == (0, TRAINED)
        assert running.Result(0, b"", "", folder).end == ("completed", "end", 0, 40)
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        assert running.nothing_runs(tmp_path)
    shutil.rmtree(folder.parent)


def test_a_disk_that_fills_up_under_way_moves_the_run(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:
        process = running.start(tmp_path, SCRIPT, "1500", "end", options=["--logs-dir", str(disk / "logs")])
        running.wait_for_line(process, b"ready")
        assert running.until(lambda: list(disk.glob("logs/*/node-0/run.db")))
        fill(disk / "filler")
        result = running.finish(process, disk / "logs")

        folder = kept_elsewhere(result)
        assert (result.code, result.stdout) == (0, b"trained\n")
        assert running.Result(0, b"", "", folder).end == ("completed", "end", 0, 1500)
        assert running.nothing_runs(tmp_path)
    shutil.rmtree(folder.parent)


def fill(path: Path) -> None:
    """Takes all the room there is."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


def test_two_runs_at_once_never_meet(tmp_path: Path) -> None:
    first = running.start(tmp_path, SCRIPT, "300", "end", options=["--run-name", "one"])
    second = running.start(tmp_path, SCRIPT, "200", "exit7", options=["--run-name", "two"])
    codes = [process.communicate(timeout=running.PATIENCE_S) and process.returncode for process in (first, second)]

    assert codes == [0, 7]
    assert running.Result(0, b"", "", tmp_path / "logs" / "one").end == ("completed", "end", 0, 300)
    assert running.Result(0, b"", "", tmp_path / "logs" / "two").end == ("failed", "exit", 7, 200)
    assert running.nothing_runs(tmp_path)


def test_spaces_and_letters_of_any_script_may_stand_in_paths(tmp_path: Path) -> None:
    home = tmp_path / "größe 大 und mehr"
    home.mkdir()
    shutil.copy(RING_TRAINING, home / "mein training.py")
    result = running.run(home, "mein training.py", "40", "end")

    assert (result.code, result.stdout) == (0, TRAINED)
    assert result.end == ("completed", "end", 0, 40)
    assert result.folder.name.startswith("mein-training-")


def test_a_path_in_no_encoding_at_all_is_no_trouble(tmp_path: Path) -> None:
    home = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    home.mkdir()
    result = running.run(home, SCRIPT, "40", "end")

    assert (result.code, result.stdout) == (0, TRAINED)
    assert result.end == ("completed", "end", 0, 40)


@pytest.mark.parametrize("name", ["größe".encode(), b"caf\xe9"], ids=["utf-8", "latin-1"])
@pytest.mark.parametrize("options", [(), ("--save-output",)], ids=" ".join)
def test_a_path_that_the_locale_has_no_letters_for_is_no_trouble(
    tmp_path: Path, name: bytes, options: tuple[str, ...]
) -> None:
    home = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    home.mkdir()
    script = os.fsdecode(name + b".py")
    shutil.copy(RING_TRAINING, home / script)
    environ = running.environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    result = running.run(home, script, "40", "end", options=options, environ=environ)

    assert (result.code, result.stdout) == (0, TRAINED)
    assert "Traceback" not in result.stderr
    assert "40 steps" in result.stderr
    assert result.end == ("completed", "end", 0, 40)


@pytest.mark.parametrize("name", ["json", "queue", "psutil", "select", "dataclasses", "sqlite3"])
def test_a_module_of_the_users_shadows_none_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    script = tmp_path / "train.py"
    script.write_text(f"import runpy, sys\ndel sys.path[0]\nrunpy.run_path({SCRIPT!r}, run_name='__main__')\n")
    result = running.run(tmp_path, str(script), "40", "end")

    assert (result.code, result.stdout) == (0, TRAINED)
    assert result.end == ("completed", "end", 0, 40)


def test_a_module_on_pythonpath_shadows_none_of_the_collectors(tmp_path: Path) -> None:
    (tmp_path / "sqlite3.py").write_text("raise SystemExit('the wrong module')\n")
    environ = running.environment()
    environ["PYTHONPATH"] = os.pathsep.join((str(tmp_path), environ["PYTHONPATH"]))
    result = running.run(tmp_path, SCRIPT, "40", "end", environ=environ)

    assert (result.code, result.stdout) == (0, TRAINED)
    assert result.end == ("completed", "end", 0, 40)


def test_disabled_means_bare(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, sys\nprint(os.environ.get('TRACEML_RUN'), os.getppid(), sys.argv[1:])\nsys.exit(5)\n")
    environ = running.environment(TRACEML_DISABLED="1")
    result = running.run(tmp_path, str(script), "--epochs", "3", environ=environ)

    assert result.code == 5
    assert result.stdout == f"None {os.getpid()} ['--epochs', '3']\n".encode()
    assert result.stderr == ""
    assert not (tmp_path / "logs").exists()


def test_a_name_that_exists_is_refused_with_the_next_free_one(tmp_path: Path) -> None:
    for number in ("", "-2"):
        (tmp_path / "logs" / f"mine{number}").mkdir(parents=True)
    result = running.run(tmp_path, SCRIPT, "40", "end", options=["--run-name", "mine"])

    assert result.code == 2
    assert result.stdout == b""
    assert "'mine-3'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_script_that_is_not_there_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    result = running.run(tmp_path, "trian.py")

    assert result.code == 2
    assert "trian.py" in result.stderr
    assert not (tmp_path / "logs").exists()


def test_a_module_runs_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    shutil.copy(RING_TRAINING, tmp_path / "pkg" / "train.py")
    result = running.run(tmp_path, "-m", "pkg.train", "40", "exit7")

    assert (result.code, result.stdout) == (7, READY)
    assert result.end == ("failed", "exit", 7, 40)


def test_a_readers_end_behind_a_pipe_is_the_scripts_end(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "600", "end")
    running.wait_for_line(process, b"ready")
    process.kill()
    process.wait()
    assert process.stdout is not None
    rest = process.stdout.read()  # returns when nobody holds the pipe: not the collector, not the witness
    process.communicate()

    assert rest == b"trained\n"
    assert running.nothing_runs(tmp_path)


def test_the_script_inherits_every_descriptor_of_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, sys\nos.write(int(sys.argv[1]), os.read(0, 100))\n")
    reader, writer = os.pipe()
    command = [*running.COMMAND, "run", str(script), str(writer)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=running.environment(),
        input=b"typed",
        pass_fds=[writer],
        capture_output=True,
        check=False,
    )
    os.close(writer)
    got = os.read(reader, 100)
    end = os.read(reader, 100)
    os.close(reader)

    assert (done.returncode, got, end) == (0, b"typed", b"")


def test_saved_output_is_passed_on_byte_for_byte_and_kept(tmp_path: Path) -> None:
    result = running.run(tmp_path, SCRIPT, "40", "exception", options=["--save-output"])

    kept = (result.folder / "rank-0.log").read_bytes()
    assert (result.code, result.stdout) == (1, READY)
    assert "ValueError: the loss is nan" in result.stderr
    assert READY in kept
    assert b"ValueError: the loss is nan" in kept


def test_saved_output_goes_on_when_the_launcher_is_killed(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "1500", "exception", options=["--save-output"])
    running.wait_for_line(process, b"ready")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (folder,) = (tmp_path / "logs").iterdir()
    assert process.stderr is not None
    rest = process.stderr.read()
    process.communicate()

    assert b"ValueError: the loss is nan" in rest
    assert b"ValueError: the loss is nan" in (folder / "rank-0.log").read_bytes()
    assert running.until((folder / "final_summary.json").exists)
    assert running.until(lambda: running.nothing_runs(tmp_path))


def test_without_that_wish_nothing_is_captured(tmp_path: Path) -> None:
    result = running.run(tmp_path, SCRIPT, "40", "end")

    assert not list(result.folder.glob("*.log"))


def test_lines_come_at_the_chosen_interval_on_stderr_alone(tmp_path: Path) -> None:
    result = running.run(tmp_path, SCRIPT, "600", "end", options=["--mode=cli", "--interval", "0.3"])

    assert result.stdout == TRAINED
    assert sum(line.startswith("TraceML: step ") for line in result.stderr.splitlines()) >= 2


def test_what_was_ignored_at_entry_stays_ignored(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import signal, sys\nsys.exit(3 if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else 4)\n")
    command = ["nohup", *running.COMMAND, "run", str(script)]
    done = subprocess.run(
        command, cwd=tmp_path, env=running.environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )

    assert done.returncode == 3


def test_a_run_whose_every_process_was_killed_is_brought_home_by_the_next_one(tmp_path: Path) -> None:
    process = running.start(tmp_path, SCRIPT, "5000", "end", options=["--run-name", "lost"])
    running.wait_for_line(process, b"ready")
    assert running.until(lambda: running.collectors_of(tmp_path))
    for collector in running.collectors_of(tmp_path):
        collector.suspend()
    os.killpg(process.pid, signal.SIGKILL)
    for collector in running.collectors_of(tmp_path):
        collector.kill()
    process.communicate()
    lost = running.Result(0, b"", "", tmp_path / "logs" / "lost")
    rings = running.ring_dir(lost.folder)
    assert rings.exists()
    running.run(tmp_path, SCRIPT, "1500", "end", options=["--run-name", "next"])

    assert lost.end[0] in ("unknown", "killed")
    assert lost.end[3] >= 10
    assert not rings.exists()


def test_the_manifest_masks_secrets_and_is_private(tmp_path: Path) -> None:
    environ = running.environment(NCCL_DEBUG="INFO", SLURM_TOKEN="hidden", HOME_SECRET="hidden", OMP_NUM_THREADS="2")
    result = running.run(
        tmp_path, SCRIPT, "3", "end", "0.001", "--token", "hidden", "--api-key=hidden", environ=environ
    )

    text = (result.folder / "manifest.json").read_text()
    assert "hidden" not in text
    assert json.loads(text)["environment"]["NCCL_DEBUG"] == "INFO"
    for path in result.folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
