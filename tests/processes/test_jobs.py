"""Shows that a training's end is its own, whatever the command does that had started it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Optional

import pytest

from tests.processes import running
from traceml.collect.life import kernel_keeps_exit_status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.process,
    pytest.mark.torch,
    pytest.mark.skipif(not kernel_keeps_exit_status(), reason="needs Linux 6.15 or newer"),
]
TRAINING = f'"{sys.executable}" "{running.SCRIPTS / "training.py"}"'


@pytest.mark.parametrize(
    ("job", "code", "end", "note"),
    [
        (f"{TRAINING} end; exit 3", 3, ("completed", "end", 0, 40), "ended with exit code 3"),
        (f"{TRAINING} end; kill -TERM $$", 143, ("completed", "end", 0, 40), "was killed by SIGTERM"),
        (f"{TRAINING} exception; true", 0, ("failed", "exception", 1, 40), "ended with exit code 0"),
        (f"{TRAINING} sigkill; true", 0, ("killed", "signal SIGKILL", 137, 40), "ended with exit code 0"),
        (f"{TRAINING} exit7; exit 7", 7, ("failed", "exit", 7, 40), None),
    ],
)
def test_a_training_ends_as_it_did_and_the_command_that_ended_otherwise_is_a_note(
    tmp_path: Path, job: str, code: int, end: tuple[str, str, int, int], note: Optional[str]
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(job + "\n", encoding="utf-8")

    result = running.run(tmp_path, "--", "bash", str(script))
    notes = [told for told in result.summary["coverage"]["notes"] if told.startswith("the command that had started")]

    assert (result.code, result.end) == (code, end)
    assert notes == ([] if note is None else [f"the command that had started the training {note}"])
