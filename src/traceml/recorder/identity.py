"""Says who this process is: rank, world, when it started."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from typing import Any, Final, Mapping, Optional

from traceml.schema.records import RankIdentity

#: By whom a process was started, the surest first: its rank, its rank on this machine, the size of the world. A size
#: counts only with its own rank: in a batch script SLURM_NTASKS speaks of tasks that nobody has started.
_STARTERS: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",)),
    (("SLURM_PROCID",), ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
    (("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    (("PMI_RANK",), ("MPI_LOCALRANKID",), ("PMI_SIZE",)),
)
_MAX_VISIBLE: Final = 2048  # characters


def identify(*, started_ns: int, waited_ns: int = 0, environ: Mapping[str, str] = os.environ) -> RankIdentity:
    """This process's identity: torch.distributed's when initialised, else its starter's variables, else rank 0 of 1.

    The attempt is torchrun's count of restarts; who starts a job without an agent starts it once.
    """
    torch = sys.modules.get("torch")
    rank, local_rank, world_size = _as_started(environ)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    local_rank = rank if local_rank is None else local_rank
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return RankIdentity(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        pid=os.getpid(),
        process_start_ns=started_ns,
        hostname=socket.gethostname(),
        torch_version=str(getattr(torch, "__version__", "")),
        python_version=platform.python_version(),
        device=_device(torch, local_rank),
        attempt=_number(environ, ("TORCHELASTIC_RESTART_COUNT",)) or 0,
        visible_devices=None if visible is None else visible[:_MAX_VISIBLE],
        device_order=environ.get("CUDA_DEVICE_ORDER", "")[:_MAX_VISIBLE],
        waited_ns=waited_ns,
    )


def _as_started(environ: Mapping[str, str]) -> tuple[int, Optional[int], int]:
    """Rank, rank on this machine where it is known, and world size, as the process was started."""
    for ranks, local_ranks, worlds in _STARTERS:
        rank = _number(environ, ranks)
        if rank is not None:
            return rank, _number(environ, local_ranks), max(_number(environ, worlds) or 1, rank + 1)
    return 0, None, 1


def _device(torch: Any, local_rank: int) -> str:
    """Where it computes, by what is current, or by custom: `cuda:1` of what it may see. The models tell later."""
    if torch is None or not torch.cuda.is_available():
        return "cpu"
    if torch.cuda.is_initialized():
        return f"cuda:{torch.cuda.current_device()}"
    return f"cuda:{local_rank}" if local_rank < torch.cuda.device_count() else "cuda"


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


def core_wait_ns() -> int:
    """How long this process's main thread has waited for a core so far; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/schedstat", "rb") as file:  # noqa: PTH123  # no pathlib on the training side
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> Optional[int]:
    for name in names:
        value = environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None
