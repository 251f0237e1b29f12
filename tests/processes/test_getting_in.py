"""Shows that `traceml run` reaches a script without its noticing: what it sees and prints is that of a bare run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch]
LOOKING = str(running.SCRIPTS / "looking.py")
RAISING = str(running.SCRIPTS / "raising.py")
ENTRY = running.SOURCE / "traceml" / "launch" / "entry"
ADDRESS = re.compile(r"0x[0-9a-f]+|\(pid\(s\) [0-9, ]+\)")
# torch itself calls a module by another line when something stands in the slot of `Module.compile()`.
TORCH_CALL = re.compile(r"line \d+, in _wrapped_call_impl\n.*\n(?: *[\^~]+\n)?")


def bare(cwd: Path, *words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The script under plain python."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=running.environment() if environ is None else environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def normal(text: str) -> str:
    """Without what differs between two bare runs."""
    return ADDRESS.sub("0x", TORCH_CALL.sub("the call\n", text))


def test_argv_path_main_flags_finders_pickles_and_a_spawned_child_are_those_of_a_bare_run(tmp_path: Path) -> None:
    alone = bare(tmp_path, LOOKING, "--epochs", "3")
    result = running.run(tmp_path, LOOKING, "--epochs", "3")

    assert alone.returncode == 0, alone.stderr
    assert normal(result.stdout.decode()) == normal(alone.stdout)
    assert result.code == 0


def test_the_traceback_of_a_ctrl_c_while_a_batch_is_made_is_that_of_a_bare_run(tmp_path: Path) -> None:
    alone = bare(tmp_path, RAISING, "ctrl-c")
    result = running.run(tmp_path, RAISING, "ctrl-c")

    assert "KeyboardInterrupt" in alone.stderr
    assert normal(result.stderr).startswith(normal(alone.stderr))


@pytest.mark.parametrize(
    ("where", "how"),
    [
        ("forward", "traced"),
        ("worker", ""),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("forward", ""), ("backward", ""), ("loader", "traced"), ("optimizer", ""))
        ),
    ],
)
def test_the_traceback_of_an_exception_is_that_of_a_bare_run(tmp_path: Path, where: str, how: str) -> None:
    alone = bare(tmp_path, RAISING, where)
    result = running.run(tmp_path, RAISING, where, *filter(None, [how]))

    assert "Error: " in alone.stderr
    assert normal(result.stderr).startswith(normal(alone.stderr))
    assert result.code == alone.returncode == 1


@pytest.mark.parametrize("text", ["print('the users own')", "raise ValueError('broken')", None])
def test_the_users_own_sitecustomize_runs_as_it_would(tmp_path: Path, text: str | None) -> None:
    folder = tmp_path / "site folder"
    folder.mkdir()
    if text is not None:
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    (tmp_path / "script.py").write_text(
        "import sys; print(getattr(sys.modules.get('sitecustomize'), '__file__', None), sys.path)"
    )
    alone = bare(tmp_path, "script.py", environ=running.environment(PYTHONPATH=str(folder)))
    reached = bare(
        tmp_path,
        "script.py",
        environ=running.environment(PYTHONPATH=f"{ENTRY}{os.pathsep}{folder}", TRACEML_RUN=str(tmp_path)),
    )

    assert (reached.stdout, reached.stderr) == (alone.stdout, alone.stderr)


def test_without_torch_nothing_of_ours_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys, json; print([n for n in sys.modules if 'traceml' in n])")

    result = running.run(tmp_path, "script.py")

    assert result.stdout == b"[]\n"


def test_a_script_that_rules_the_imports_itself_still_gets_torch(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import importlib.abc, sys\n"
        "class Mine(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None): print('asked') if name == 'torch' else None\n"
        "sys.meta_path.insert(0, Mine())\n"
        "import torch\n"
        "import importlib; importlib.invalidate_caches(); importlib.reload(sys.modules['torch.version'])\n"
        "print([f for f in sys.meta_path if 'sitecustomize' in repr(f)],\n"
        "    type(torch.__spec__).__module__, 'traceml.part' in sys.modules)\n"
    )

    result = running.run(tmp_path, "script.py")

    assert result.stdout == b"asked\n[] _frozen_importlib True\n", result.stderr


def test_a_torch_whose_import_fails_fails_as_it_would_alone(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import no_such_library\n")
    (tmp_path / "script.py").write_text("import torch\n")

    alone = bare(tmp_path, "script.py")
    result = running.run(tmp_path, "script.py")

    assert "no_such_library" in alone.stderr
    assert result.stderr.startswith(alone.stderr)


def test_a_python_without_traceml_is_recorded_by_the_one_that_runs_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = 'none at all'\n")
    (tmp_path / "script.py").write_text(
        "import torch, sys, traceml.wire\nprint(traceml.__file__, [p for p in sys.path if 'src' in p])\n"
    )
    environ = {**running.environment(), "PYTHONPATH": str(ENTRY), "TRACEML_RUN": str(tmp_path)}

    found = subprocess.run(
        ["/usr/bin/env", sys.executable, "-c", "import script"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout.startswith(str(running.SOURCE))
    assert "this process is not recorded: RunError: No run at" in found.stderr


def test_another_package_called_traceml_is_left_alone_and_named(tmp_path: Path) -> None:
    (tmp_path / "traceml.py").write_text("mine = True\n")
    (tmp_path / "script.py").write_text("import torch, traceml; print(traceml.mine)\n")

    result = running.run(tmp_path, "script.py")

    assert result.stdout == b"True\n"
    assert result.stderr.count("'traceml' is another package here") == 1
