"""Tells the version, and notices a second distribution that owns the folder `traceml/`."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Final, Iterator, Optional, Sequence

import traceml

_DISTRIBUTION: Final = re.compile(r"(?P<name>traceml[\w.]*)-(?P<version>[^-]+)\.dist-info", re.IGNORECASE)
_OURS: Final = "traceml_ai"
_MAX_RECORD_BYTES: Final = 1 << 20


def version_text(search: Optional[Sequence[str]] = None) -> str:
    """One line with our version; a second one when another distribution writes into `traceml/` too."""
    line = f"traceml {traceml.__version__} (Python {platform.python_version()})"
    warning = second_owner(search)
    return f"{line}\n{warning}" if warning else line


def second_owner(search: Optional[Sequence[str]] = None) -> Optional[str]:
    """How to repair an installation in which two distributions own `traceml/`; None when ours is alone.

    Args:
        search: Folders to look into; None: `sys.path`. Reads file names, and the RECORD of those called traceml*.
    """
    others = {
        name: version
        for folder in (sys.path if search is None else search)
        for name, version, path in _distributions(folder)
        if (name, version) != (_OURS, traceml.__version__) and _owns_traceml(path)
    }
    if not others:
        return None
    seen = ", ".join(f"{name} {version}" for name, version in others.items())
    # Uninstalling the other one takes files of ours along: both go, then ours comes back.
    names = " ".join(dict.fromkeys(name.replace("_", "-") for name in (*others, _OURS)))
    return f"{seen} owns the folder traceml/ too. Repair: pip uninstall {names}, then install TraceML again."


def _distributions(folder: str) -> Iterator[tuple[str, str, Path]]:
    try:
        names = sorted(os.listdir(folder or "."))  # noqa: PTH208  # names are all that is looked at, of hundreds
    except OSError:
        return
    for name in names:
        found = _DISTRIBUTION.fullmatch(name)
        if found:
            yield re.sub(r"[-.]+", "_", found["name"].lower()), found["version"], Path(folder or ".") / name


def _owns_traceml(distribution: Path) -> bool:
    try:
        with (distribution / "RECORD").open("rb") as file:
            return re.search(rb"^traceml/", file.read(_MAX_RECORD_BYTES), re.MULTILINE) is not None
    except OSError:
        return False
