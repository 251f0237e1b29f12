"""Makes the command line of a Python process of our own, in which no module of the user's shadows one of ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, Sequence

import traceml

#: What the full screen imports, its own imports included: they may lie in folders that an isolated Python leaves out.
SCREEN_MODULES: Final = (
    "textual",
    "rich",
    "markdown_it",
    "mdurl",
    "mdit_py_plugins",
    "linkify_it",
    "uc_micro",
    "platformdirs",
    "pygments",
    "typing_extensions",
    "tomli",
    "psutil",
    "pynvml",
)

# Isolated (-I): neither PYTHONPATH nor the folder of the user's script can shadow a module of ours or of the standard
# library. The folders that hold traceml and what it needs come last, so that a json.py beside them harms nobody; only
# `import traceml` itself looks there first, and finds this very package.
_BOOTSTRAP: Final = """\
import sys, typing, importlib
home, *others = sys.argv.pop(1).split(chr(10))
sys.path.insert(0, home)
import traceml
sys.path.remove(home)
sys.path += [p for p in (home, *others) if p not in sys.path]
sys.exit(importlib.import_module(sys.argv.pop(1)).main(sys.argv[1:]))
"""


def isolated(module: str, *words: str, needs: Sequence[str]) -> list[str]:
    """The command line that runs `main` of a module of ours.

    Args:
        module: Its full name.
        words: The process's arguments.
        needs: The modules of others that it imports.
    """
    paths = "\n".join(dict.fromkeys(_parents_of(needs)))
    return [sys.executable, "-I", "-c", _BOOTSTRAP, paths, module, *words]


def _parents_of(needs: Sequence[str]) -> list[str]:
    """The folders in which traceml and what it needs are found, without importing them."""
    package = traceml.__file__
    assert package is not None
    parents = [str(Path(package).absolute().parent.parent)]
    entries = [Path(entry) for entry in (*sys.path[1:], *sys.path[:1]) if entry]  # the script's own folder comes last
    for name in needs:
        for entry in entries:
            if (entry / name).is_dir() or (entry / f"{name}.py").is_file():
                parents.append(str(entry.absolute()))
                break
    return parents
