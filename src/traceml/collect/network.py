"""Tells whether a folder lies on a network file system, where SQLite's locks cannot be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

_KINDS: Final = frozenset(
    {
        "9p",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fhgfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.juicefs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "weka",
        "wekafs",
        "webdav",
    }
)


def is_network(folder: Path) -> bool:
    """Whether the mount that holds `folder` is a network file system; False where the mounts cannot be read."""
    try:
        mounts = psutil.disk_partitions(all=True)
        place = folder.resolve()
    except (OSError, psutil.Error, RuntimeError):
        return False
    holding = [mount for mount in mounts if place == Path(mount.mountpoint) or Path(mount.mountpoint) in place.parents]
    if not holding:
        return False
    return max(holding, key=lambda mount: len(mount.mountpoint)).fstype.lower() in _KINDS
