"""Shows that whatever starts the training, it is found: modules, shells, timeout, xargs, an emptied environment."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes import running
from tests.processes.test_parts import runs_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch]
PARTS = str(running.SCRIPTS / "parts.py")


@pytest.mark.parametrize(
    "command",
    [
        (sys.executable, "-m", "job.train"),
        ("timeout", "60", sys.executable, "-m", "job.train"),
        ("sh", "-c", f"echo job.train | xargs '{sys.executable}' -m"),
        ("nice", "env", "MORE=1", sys.executable, "-m", "job.train"),
        (sys.executable, "-c", "import runpy; runpy.run_module('job.train', run_name='__main__')"),
    ],
    ids=["python -m", "timeout", "xargs", "env", "runpy"],
)
def test_what_a_launcher_starts_is_the_run_and_it_stays_silent(tmp_path: Path, command: tuple[str, ...]) -> None:
    package = tmp_path / "job"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(
        f"import sys; sys.path.insert(0, {str(running.SCRIPTS)!r})\n"
        "from parts import train\n"
        "train()\n"
        "print(__name__, __spec__.name)\n",
        encoding="utf-8",
    )

    result = running.run(tmp_path, "--", *command, options=["--mode=summary"])

    assert (result.code, result.stdout) == (0, b"__main__ job.train\n"), result.stderr
    assert runs_in(tmp_path) == {"": {0: 10}}
    assert running.nothing_runs(tmp_path)


def test_an_emptied_environment_runs_untraced_and_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, torch; print(sorted(os.environ))\n", encoding="utf-8")

    result = running.run(tmp_path, "--", "env", "-i", "HOME=/", sys.executable, str(script))

    assert (result.code, result.stdout.startswith(b"['HOME'")) == (0, True)
    assert "no Python of this run was seen to import torch" in result.stderr


def test_what_is_left_of_an_environment_is_enough_with_our_two_names(tmp_path: Path) -> None:
    line = f"env -i PYTHONPATH=\"$PYTHONPATH\" TRACEML_RUN=\"$TRACEML_RUN\" '{sys.executable}' '{PARTS}' one && "
    line += f"env -i PYTHONPATH=\"$PYTHONPATH\" TRACEML_RUN=\"$TRACEML_RUN\" '{sys.executable}' '{PARTS}' workers"

    result = running.run(tmp_path, "--", "sh", "-c", line, options=["--mode=summary"])

    assert (result.code, result.stdout) == (0, b"trained\ntrained\n")
    assert runs_in(tmp_path) == {"": {0: 20}}
