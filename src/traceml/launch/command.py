"""Makes the command line of what is to be run, and the environment by which its Python processes are reached."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final, Mapping, Optional, Sequence

from traceml.errors import CommandError, UsageError
from traceml.settings import ONE_RANK_VARIABLE, RUN_VARIABLE

#: The folder that stands first on PYTHONPATH; its sitecustomize hides it again.
ENTRY: Final = Path(__file__).absolute().parent / "entry"
_PATHS: Final = "PYTHONPATH"
_TORCHRUN: Final = "torch.distributed.run"
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_CLOSED: Final = "ESI"  # the options that close the way in
_WITH_VALUE: Final = ("W", "X")


def command_of(
    kind: str, target: str, arguments: Sequence[str], *, python: str, num_ranks: Optional[str] = None
) -> list[str]:
    """The command line of a script, a module or any command.

    Args:
        kind: "script", "module" or "command".
        target: The path, the module's name, or the command.
        arguments: The target's own.
        python: The interpreter of a script or a module.
        num_ranks: Started by `torchrun --standalone`, each of them a script or a module; None: one process, directly.

    Raises:
        UsageError: `no-script` when the script is not there.
        CommandError: `no-command` when the command is not there, or cannot be executed.
    """
    if kind == "command":
        _find_command(target)
        return [target, *arguments]
    starter = [python]
    if num_ranks is not None:
        starter = [python, "-m", _TORCHRUN, "--standalone", f"--nproc-per-node={num_ranks}"]
    if kind == "module":
        return [*starter, "-m", target, *arguments]
    if target != "-" and not Path(target).exists():
        message = f"No script at '{target}'. Give the path of a Python script, or `-m package.module`."
        raise UsageError(message, slug="no-script")
    return [*starter, target, *arguments]


def environment_of(folder: Path, environ: Mapping[str, str], *, one_rank: bool = False) -> dict[str, str]:
    """The environment of a run's processes: which run it is, and the way in, before whatever was on PYTHONPATH.

    Args:
        folder: The run folder, absolute.
        environ: Ours.
        one_rank: The terminal is the first rank's alone: each other one writes into `rank-<r>.log`.
    """
    entry = str(ENTRY)
    others = [path for path in environ.get(_PATHS, "").split(os.pathsep) if path != entry]
    paths = os.pathsep.join([entry, *others]) if any(others) else entry
    alone = {ONE_RANK_VARIABLE: "1"} if one_rank else {}
    return {**environ, RUN_VARIABLE: str(folder), _PATHS: paths, **alone}


def closed_by(command: Sequence[str]) -> Optional[str]:
    """The option (`-I`, `-S`, `-E`) with which a Python command line cannot be reached; None: it can."""
    words = list(command)
    if not words or not _PYTHON.fullmatch(Path(words[0]).name):
        return None
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        word = words[at]
        at += 1
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], start=1):
            if letter in _CLOSED:
                return f"-{letter}"
            if letter in "cm":
                return None  # what follows is the program's
            if letter in _WITH_VALUE:
                at += place == len(word) - 1
                break
    return None


def _find_command(name: str) -> None:
    if shutil.which(name) is not None:
        return
    if os.sep in name and Path(name).exists():
        raise CommandError(f"'{name}' cannot be executed. `chmod +x` it, or name its interpreter.", code=126)
    raise CommandError(f"No command '{name}'. Is it installed, and on PATH?", code=127)
