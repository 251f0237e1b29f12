"""Brings the ranks of a job that `traceml run` did not start into one run: the first makes it, the others take part.

They know one another by their starter: the same parent process (torchrun's agent, mpirun, srun's step) on this machine.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Callable, Final, Iterator, Mapping, Optional

try:
    import fcntl
except ImportError:  # Windows, where nothing is recorded
    fcntl = None  # type: ignore[assignment]  # the name stays, so that one test tells

from traceml.launch.place import Place, private_root
from traceml.wire.manifest import read_manifest
from traceml.wire.node import read_node
from traceml.wire.ringfolder import is_ring_folder

_PREFIX: Final = "job-"
_WORLDS: Final = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_MAX_BYTES: Final = 8192


def job_of(environ: Mapping[str, str], parent: int) -> Optional[str]:
    """A name that the ranks of one job on this machine share, and no other job; None where nobody started several."""
    sizes = [environ[name] for name in _WORLDS if environ.get(name, "").isdigit()]
    if fcntl is None or not sizes or int(sizes[0]) < 2:  # noqa: PLR2004  # several ranks
        return None
    born = _born(parent)
    if born is None:
        return None
    names = ("TORCHELASTIC_RUN_ID", "SLURM_STEP_ID", "PWD")
    known = (str(parent), born, *[environ.get(name, "") for name in names])
    return hashlib.sha256("\0".join(known).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def gather(job: str, make: Callable[[], Place]) -> tuple[Place, bool]:
    """The job's run, and whether this process is the one that made it.

    Whoever comes while the first one makes it waits for that, some milliseconds. A run that is over is not joined.

    Args:
        job: As `job_of` names it.
        make: Makes a run.

    Raises:
        OSError: No private folder to meet in.
        RunError: As `make` raises.
    """
    root = private_root()
    path = root / (_PREFIX + job)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        found = _joined(os.pread(fd, _MAX_BYTES, 0))
        if found is not None:
            return found, False
        place = make()
        os.ftruncate(fd, 0)
        os.pwrite(fd, os.fsencode(place.folder), 0)
    finally:
        os.close(fd)
    for old in _over(root, path):
        old.unlink(missing_ok=True)
    return place, True


def _joined(folder: bytes) -> Optional[Place]:
    if not folder:
        return None
    path = Path(os.fsdecode(folder))
    with suppress(Exception):  # removed, or from a process that died while it made it
        manifest = read_manifest(path)
        ring_dir = Path(manifest.ring_dir)
        if is_ring_folder(ring_dir) and not read_node(ring_dir).is_done:
            return Place(path, manifest, ())
    return None


def _over(root: Path, ours: Path) -> Iterator[Path]:
    """The meeting places of jobs that are over."""
    for path in root.glob(_PREFIX + "*"):
        with suppress(OSError):
            folder = path.read_bytes()
            if path != ours and folder and _joined(folder) is None:
                yield path


def _born(pid: int) -> Optional[str]:
    """When a process started, in ticks: with its pid that names it for good."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
