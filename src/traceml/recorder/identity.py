"""Says who this process is: rank, world, when it started."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from typing import Final, Mapping, Optional

from traceml.schema.records import RankIdentity

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_MAX_VISIBLE: Final = 2048  # characters
_WORLDS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")


def identify(*, started_ns: int, environ: Mapping[str, str] = os.environ) -> RankIdentity:
    """This process's identity: torch.distributed's when initialised, else its variables, else rank 0 of 1."""
    torch = sys.modules.get("torch")
    rank, world_size = _first(environ, _RANKS), _first(environ, _WORLDS)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    local_rank = _first(environ, _LOCAL_RANKS)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    uses_cuda = torch is not None and torch.cuda.is_available()
    return RankIdentity(
        rank=rank or 0,
        local_rank=local_rank if local_rank is not None else rank or 0,
        world_size=world_size or 1,
        pid=os.getpid(),
        process_start_ns=started_ns,
        hostname=socket.gethostname(),
        torch_version=str(getattr(torch, "__version__", "")),
        python_version=platform.python_version(),
        device="cuda" if uses_cuda else "cpu",
        attempt=_first(environ, ("TORCHELASTIC_RESTART_COUNT",)) or 0,
        visible_devices=None if visible is None else visible[:_MAX_VISIBLE],
        device_order=environ.get("CUDA_DEVICE_ORDER", "")[:_MAX_VISIBLE],
    )


def process_start_ns() -> int:
    """When this process started, on the clock of `time.perf_counter`; now where the system does not tell."""
    now_ns = time.perf_counter_ns()
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123  # no pathlib on the training side
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        booted_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        age_ns = booted_ns - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return now_ns
    return now_ns - max(0, age_ns)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> Optional[int]:
    for name in names:
        value = environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None
