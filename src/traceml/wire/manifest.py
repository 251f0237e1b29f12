"""Writes and reads `manifest.json`, by which a run's processes find each other's files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Callable, Final

from traceml.errors import RunError
from traceml.schema.records import Manifest
from traceml.schema.struct import StructError, from_plain, to_plain
from traceml.wire.paths import from_file, to_file
from traceml.wire.regular import open_regular

FILE: Final = "manifest.json"
SCHEMA_VERSION: Final = 1
_MAX_BYTES: Final = 1 << 20
_LAST_S: Final = 253_370_764_800.0  # the year 9999, the last a calendar knows


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Puts the manifest into the run folder, 0600, whole or not at all.

    Raises:
        OSError: The folder cannot be written.
    """
    write_private(
        folder / FILE, json.dumps(to_plain(_each_path(manifest, to_file)), indent=1, ensure_ascii=False) + "\n"
    )


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder.

    Raises:
        RunError: `no-run`, `damaged-run` or `run-too-new`.
    """
    path = folder / FILE
    try:
        with open_regular(path) as file:
            found = json.loads(file.read(_MAX_BYTES))
        version = found.get("schema_version") if isinstance(found, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            message = f"Run '{folder}' has manifest version {version}, this TraceML reads {SCHEMA_VERSION}: update it."
            raise RunError(message, slug="run-too-new")
        return _each_path(_dated(from_plain(Manifest, found)), from_file)
    except OSError as error:
        message = f"No run at '{folder}' ({error.strerror}). Give the folder that `traceml run` printed."
        raise RunError(message, slug="no-run") from None
    except (StructError, ValueError, RecursionError) as error:
        raise RunError(f"Run '{folder}' has a damaged manifest.json: {error}.", slug="damaged-run") from None


def _dated(manifest: Manifest) -> Manifest:
    if not 0 <= manifest.created_at < _LAST_S:
        raise StructError(f"created_at: {manifest.created_at!r} is no time")
    return manifest


def _each_path(manifest: Manifest, change: Callable[[str], str]) -> Manifest:
    return replace(
        manifest,
        ring_dir=change(manifest.ring_dir),
        cwd=change(manifest.cwd),
        script=change(manifest.script),
        arguments=tuple(map(change, manifest.arguments)),
    )


def write_private(path: Path, text: str, *, errors: str = "backslashreplace") -> None:
    """Writes a file that only the user can read, through a neighbour and a rename: never half a file.

    Args:
        path: Where.
        text: Its content, in UTF-8.
        errors: What becomes of the bytes of a path that are no UTF-8; "surrogateescape" writes them as they are.

    Raises:
        OSError: No room, or no right to write.
    """
    neighbour = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(neighbour, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors=errors) as file:
            file.write(text)
        neighbour.replace(path)
    except OSError:
        neighbour.unlink(missing_ok=True)
        raise
