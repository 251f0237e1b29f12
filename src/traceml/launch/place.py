"""Makes a run's place: its name, its private folders, its manifest."""

from __future__ import annotations

import errno
import os
import platform
import re
import socket
import stat
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Mapping, Optional, Sequence

from traceml import __version__
from traceml.errors import RunError
from traceml.schema.names import safe_name
from traceml.schema.records import Manifest
from traceml.wire.manifest import SCHEMA_VERSION, write_manifest, write_private
from traceml.wire.paths import to_file, usable
from traceml.wire.ringfolder import RUN, remove_ring_folder

if TYPE_CHECKING:
    from traceml.settings import Settings

MASK: Final = "***"
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # everything below it goes into an owner-checked 0700 folder
_ROOM_BYTES: Final = 16 << 20  # three rings; Docker gives 64 MB
_MAX_TRIAL_BYTES: Final = 200  # of a name that was good, with a number behind it
_PREFIXES: Final = ("CUDA_", "NCCL_", "OMP_", "SLURM_", "TORCH", "PYTORCH_", "GLOO_")
_NAMES: Final = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}
)
_SECRET: Final = re.compile(r"token|key|secret|passw|credential|auth|jwt", re.IGNORECASE)
_USER_IN_URL: Final = re.compile(r"(://)[^/@\s]+@")


@dataclass(frozen=True)
class Place:
    """Where a run lives. `notes` are lines for the user: what could not be as asked."""

    folder: Path
    manifest: Manifest
    notes: tuple[str, ...] = ()


def prepare_run(
    settings: Settings, *, script: str, arguments: Sequence[str], started_by: str, is_check: bool = False
) -> Place:
    """Makes the run folder and the ring folder, both 0700, and writes the manifest.

    A logs folder that cannot be written moves the run into a fresh private temporary folder, and a note says so.

    Args:
        settings: Names the logs folder and, where the user chose one, the run.
        script: The script's path, or a module's name.
        arguments: The script's own; secrets among them are masked in the manifest.
        started_by: "traceml run" or "init".
        is_check: The first steps alone are looked at, for the table of `--check`.

    Raises:
        RunError: `run-exists`, with the next free name; `no-place` when not even the temporary folder can be written.
    """
    run_id = os.urandom(8).hex()
    ring_dir = _ring_folder(run_id)
    notes: list[str] = []
    try:
        folder = _run_folder(settings, script, notes)
        manifest = _manifest(settings, script, arguments, started_by, name=folder.name, ids=(run_id, ring_dir))
        manifest = replace(manifest, is_check=is_check)
        try:
            write_manifest(folder, manifest)
        except OSError as error:
            _remove_empty(folder)
            folder = _fallback(folder.name, folder.parent, error, notes)
            write_manifest(folder, manifest)
        write_private(ring_dir / RUN, to_file(str(folder)), errors="surrogateescape")
    except BaseException:
        _remove_empty(ring_dir)
        raise
    return Place(folder, manifest, tuple(notes))


def discard(place: Place) -> None:
    """Takes away the place of a run that never began."""
    remove_ring_folder(Path(place.manifest.ring_dir))
    _remove_empty(place.folder)


def ring_roots() -> tuple[Path, ...]:
    """The folders in which this user's ring folders lie, existing or not."""
    return tuple(parent / f"traceml-{os.getuid()}" for parent in (_SHARED_MEMORY, temporary_folder()))


def temporary_folder() -> Path:
    """The local temporary folder: TMPDIR, else /tmp."""
    # Not tempfile: it brings random and hashlib into the launcher, which has 20 MB.
    for name in ("TMPDIR", "TEMP", "TMP"):
        found = os.environ.get(name)
        if found and Path(found).is_dir() and os.access(found, os.W_OK | os.X_OK):
            return Path(found).absolute()
    return Path("/tmp")  # noqa: S108  # only the parent of folders with random names and mode 0700


def fresh_folder(parent: Path, prefix: str) -> Path:
    """A new folder 0700 with a name nobody can foresee.

    Raises:
        OSError: The parent cannot be written.
    """
    while True:
        path = parent / f"{prefix}{os.urandom(6).hex()}"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return path


def masked_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments with the values of those whose name sounds secret taken out: `--token x`, `--token=x`, `api_key=x`."""
    masked = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("--"):
            masked.append(MASK)
            hide_next = False
        elif equals and _SECRET.search(name):
            masked.append(f"{name}={MASK}")
            hide_next = False
        else:
            masked.append(_USER_IN_URL.sub(rf"\1{MASK}@", argument))
            hide_next = argument.startswith("-") and not equals and _SECRET.search(argument) is not None
    return tuple(masked)


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that explain a training's speed, by allow-list, with secrets masked."""
    found = {name: value for name, value in environ.items() if name.startswith(_PREFIXES) or name in _NAMES}
    return {
        name: MASK if _SECRET.search(name) else _USER_IN_URL.sub(rf"\1{MASK}@", value)
        for name, value in sorted(found.items())
    }


def _run_folder(settings: Settings, script: str, notes: list[str]) -> Path:
    logs = Path(usable(settings.logs_dir)).absolute()
    given = safe_name(settings.run_name, max_bytes=_MAX_TRIAL_BYTES) if settings.run_name else None
    try:
        logs.mkdir(parents=True, exist_ok=True)
        while True:
            folder = logs / (given or _default_name(script))
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                if given:
                    raise _taken(logs, given) from None
                continue
            return folder
    except OSError as error:
        return _fallback(given or _default_name(script), logs, error, notes)


def _default_name(script: str) -> str:
    stem = "stdin" if script == "-" else Path(script).name
    return f"{safe_name(stem.removesuffix('.py'))}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def _taken(logs: Path, name: str) -> RunError:
    number = 2
    while (logs / f"{name}-{number}").exists():
        number += 1
    return RunError(f"Run '{logs / name}' exists already. The next free name is '{name}-{number}'.", slug="run-exists")


def _fallback(name: str, logs: Path, error: OSError, notes: list[str]) -> Path:
    try:
        folder = fresh_folder(temporary_folder(), "traceml-") / name
        folder.mkdir(mode=0o700)
    except OSError as second:
        reasons = f"'{logs}' ({error.strerror}) nor '{temporary_folder()}' ({second.strerror})"
        message = f"Neither {reasons} can be written. Give --logs-dir."
        raise RunError(message, slug="no-place") from None
    notes.append(f"TraceML: cannot write in '{logs}' ({error.strerror}); this run is kept in '{folder}'.")
    return folder


def _ring_folder(run_id: str) -> Path:
    reasons = []
    for root in ring_roots():
        try:
            if root.parent == _SHARED_MEMORY and not _has_room(root.parent):
                continue
            return _private_folder(root, run_id)
        except OSError as error:
            reasons.append(f"'{root.parent}' ({error.strerror})")
    raise RunError(
        f"No room for the rings in {' or '.join(reasons)}. Set TMPDIR to a folder of yours.", slug="no-place"
    )


def _has_room(parent: Path) -> bool:
    if not parent.is_dir():
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    free = os.statvfs(parent)
    return free.f_bavail * free.f_frsize >= _ROOM_BYTES


def private_root() -> Path:
    """The first folder for ring folders that is the user's own.

    Raises:
        OSError: There is none, and none can be made.
    """
    error: Optional[OSError] = None
    for root in ring_roots():
        try:
            if _is_own(root):
                return root
        except OSError as found:
            error = found
    raise error or OSError(errno.EPERM, os.strerror(errno.EPERM))


def _is_own(root: Path) -> bool:
    """Makes it where it is not there; whether it is the user's own, and private now."""
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        found = os.lstat(root)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        if stat.S_IMODE(found.st_mode) != 0o700:  # noqa: PLR2004  # rwx------
            root.chmod(0o700)
    return True


def _private_folder(root: Path, run_id: str) -> Path:
    """`root/run_id`, where root is the user's own; else a fresh folder beside it: nobody can lay a trap."""
    if not _is_own(root):
        return fresh_folder(root.parent, "traceml-")
    folder = root / run_id
    folder.mkdir(mode=0o700)
    return folder


def _remove_empty(folder: Path) -> None:
    try:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    except OSError:
        pass  # what is left is an empty private folder; the error that brought us here is the one to tell


def _manifest(
    settings: Settings,
    script: str,
    arguments: Sequence[str],
    started_by: str,
    *,
    name: str,
    ids: tuple[str, Path],
) -> Manifest:
    run_id, ring_dir = ids
    return Manifest(
        schema_version=SCHEMA_VERSION,
        name=name,
        run_id=run_id,
        created_at=time.time(),
        created_ns=time.perf_counter_ns(),
        ring_dir=str(ring_dir),
        script=script,
        arguments=masked_arguments(arguments),
        cwd=_cwd(),
        started_by=started_by,
        hostname=socket.gethostname(),
        traceml_version=__version__,
        python_version=platform.python_version(),
        environment=allowed_environment(os.environ),
        settings=settings.chosen(),
        launcher_pid=os.getpid(),
        total_steps=settings.total_steps,
        trace_max_steps=settings.trace_max_steps,
    )


def _cwd() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # the folder was removed under the shell
        return ""
