"""Knows what a ring folder of ours is, and removes nothing else: a manifest's word is not enough to delete anything."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

#: A FIFO in the ring folder: a byte wakes the collector, which else looks five times a second.
BELL: Final = "bell"
#: In the ring folder: the path of its run folder, by which orphaned rings find their run again.
RUN: Final = "run"
#: In the ring folder: how far the collector is (see node.py).
NODE: Final = "node.json"
#: In the ring folder: some process of the run has torch, and could be looked into.
ARRIVED: Final = "arrived"
#: In the ring folder, of each rank of a job that may be restarted: attempt, rank, world size, process.
ARRIVAL: Final = re.compile(rf"{ARRIVED}-(\d+)-(\d+)-(\d+)-(\d+)")
#: In the ring folder: the table of a check.
CHECK: Final = "check.txt"
#: In the ring folder: what the collector wrote to stdout and stderr, normally nothing.
LOG: Final = "collector.log"
_PRIVATE: Final = 0o700
_IN_ROOT: Final = re.compile(r"[0-9a-f]{16}")  # below traceml-<uid>
_ALONE: Final = re.compile(r"traceml-[0-9a-f]{12}")  # where another user's folder took that name
_FILES: Final = re.compile(
    rf"{'|'.join(map(re.escape, (BELL, RUN, NODE, ARRIVED, CHECK, LOG)))}|lock"
    r"|\d+-\d+\.ring(\.waiting)?|report-\d+\.json|rank-\d+(-\d+)?|\.[\w.-]+\.\d+"
    rf"|{ARRIVAL.pattern}"
)


def is_ring_folder(path: Path) -> bool:
    """Whether `path` is a folder as TraceML makes them for rings: by its place and name, the user's own, and private.

    A folder that is named in a manifest from somebody else, or a symlink to one, is none.
    """
    if not hasattr(os, "getuid") or not path.is_absolute() or ".." in path.parts:
        return False
    in_root = path.parent.name == f"traceml-{os.getuid()}" and _IN_ROOT.fullmatch(path.name)
    if not in_root and not _ALONE.fullmatch(path.name):
        return False
    return _is_private(path) and (not in_root or _is_private(path.parent))


def remove_ring_folder(path: Path) -> bool:
    """Removes a ring folder and the files that TraceML puts there; anything else in it stays, and so does the folder.

    Returns:
        Whether it is gone.
    """
    if not is_ring_folder(path):
        return False
    with suppress(OSError):
        for file in list(path.iterdir()):
            if _FILES.fullmatch(file.name):
                with suppress(OSError):  # a folder of that name, or gone already
                    file.unlink()
        path.rmdir()
    return not path.exists()


def _is_private(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == _PRIVATE
