"""Shows that an attempt of which no rank came to a step is one, with how its ranks ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from traceml.collect.arrivals import Arrivals
from traceml.collect.life import Life, kernel_keeps_exit_status
from traceml.wire.ringfolder import ARRIVAL, ARRIVED


def arrive(folder: Path, arrivals: Arrivals, attempt: int, pid: int, *, rank: int = 0) -> None:
    path = folder / f"{ARRIVED}-{attempt}-{rank}-2-{pid}"
    path.touch()
    arrivals.look(path)


def gone(folder: Path, *attempts: int) -> tuple[Arrivals, Life]:
    """The arrivals of a rank of each attempt, whose processes have left with code 3 since."""
    life = Life(time.perf_counter_ns)
    arrivals = Arrivals(life)
    for attempt in attempts:
        with subprocess.Popen([sys.executable, "-c", "input(); exit(3)"], stdin=subprocess.PIPE) as process:
            arrive(folder, arrivals, attempt, process.pid)
            assert process.stdin is not None
            process.stdin.write(b"\n")
    life.look()
    return arrivals, life


def test_an_attempt_without_rings_ended_before_its_first_step_and_says_how(tmp_path: Path) -> None:
    arrivals, life = gone(tmp_path, 0, 1)
    (attempt,) = arrivals.attempts({0}, now_ns=time.perf_counter_ns())
    life.close()
    (death,) = attempt.deaths

    assert (attempt.number, attempt.world_size, attempt.num_steps) == (1, 2, 0)
    assert (death.rank, death.step) == (0, 1)
    assert death.how == ("left with exit code 3" if kernel_keeps_exit_status() else "gone without a word")
    assert 0 < attempt.started_ns <= attempt.ended_ns


def test_where_none_has_rings_the_last_one_is_the_runs_own(tmp_path: Path) -> None:
    arrivals, life = gone(tmp_path, 0, 1, 2)
    life.close()

    assert [attempt.number for attempt in arrivals.attempts((), now_ns=0)] == [0, 1]


def test_an_attempt_that_lives_has_not_ended_and_other_files_are_none(tmp_path: Path) -> None:
    arrivals = Arrivals(Life(time.perf_counter_ns))
    arrive(tmp_path, arrivals, 1, os.getpid())
    arrivals.look(tmp_path / "rank-0-1")

    assert arrivals.attempts({0}, now_ns=0) == []


def test_a_file_says_attempt_rank_world_and_process() -> None:
    told = ARRIVAL.fullmatch("arrived-1-3-8-4711")

    assert told is not None
    assert told.groups() == ("1", "3", "8", "4711")
