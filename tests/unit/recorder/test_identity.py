"""Shows who a process is by the variables of whoever started it."""

from __future__ import annotations

import pytest

from traceml.recorder.identity import identify

TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "2"}
SRUN = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "6"}


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        ({}, (0, 0, 1, 0)),
        (TORCHRUN, (5, 1, 8, 2)),
        ({**TORCHRUN, **SRUN}, (5, 1, 8, 2)),  # torchrun in a SLURM job
        (SRUN, (3, 1, 4, 0)),
        (MPIRUN, (2, 0, 6, 0)),
        ({"PMI_RANK": "1", "MPI_LOCALRANKID": "1", "PMI_SIZE": "2"}, (1, 1, 2, 0)),
        ({"SLURM_NTASKS": "8"}, (0, 0, 1, 0)),  # a shell of `salloc`: nobody has started eight
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"}, (0, 0, 1, 0)),  # a batch script
        ({"RANK": "3"}, (3, 3, 4, 0)),
        ({"RANK": "", "WORLD_SIZE": "4"}, (0, 0, 1, 0)),
    ],
)
def test_a_process_is_who_its_starter_says(environ: dict[str, str], who: tuple[int, int, int, int]) -> None:
    found = identify(started_ns=0, environ=environ)

    assert (found.rank, found.local_rank, found.world_size, found.attempt) == who
