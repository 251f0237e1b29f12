"""Tests how a run's end is told from what was seen of it."""

from __future__ import annotations

import signal
from typing import Optional

import pytest

from traceml.collect.end import Departure, ScriptExit, run_end, training_exit
from traceml.schema.records import RankEnd

S = 1_000_000_000


def ended(
    told: Optional[ScriptExit], *hows: Optional[str], launcher_gone_ns: Optional[int] = None
) -> tuple[str, str, Optional[int]]:
    ends = [None if how is None else RankEnd(0, how, "ValueError" if how == "exception" else "") for how in hows]
    end = run_end(Departure(told, ends, ended_ns=100 * S, ended_at=1e9, launcher_gone_ns=launcher_gone_ns))
    return end.status, end.ended_by, end.exit_code


@pytest.mark.parametrize(
    ("told", "hows", "end"),
    [
        (ScriptExit(0), ("end",), ("completed", "end", 0)),
        (ScriptExit(0), ("shutdown",), ("completed", "end", 0)),
        (ScriptExit(0), ("trace-max-steps",), ("completed", "end", 0)),
        (ScriptExit(0), (None,), ("completed", "exit", 0)),  # os._exit(0)
        (ScriptExit(0), (), ("completed", "end", 0)),  # never trained
        (ScriptExit(7), ("end",), ("failed", "exit", 7)),
        (ScriptExit(3), (None,), ("failed", "exit", 3)),
        (ScriptExit(1), ("exception",), ("failed", "exception", 1)),
        (ScriptExit(1), (), ("failed", "exit", 1)),
        (ScriptExit(137, "SIGKILL"), (None,), ("killed", "signal SIGKILL", 137)),
        (ScriptExit(130, "SIGINT"), ("exception",), ("killed", "signal SIGINT", 130)),
    ],
)
def test_what_the_launcher_saw_counts_most(
    told: ScriptExit, hows: tuple[Optional[str], ...], end: tuple[str, str, int]
) -> None:
    assert ended(told, *hows) == end


def test_without_a_launcher_the_goodbyes_tell() -> None:
    assert ended(None, "end", "end") == ("completed", "end", None)
    assert ended(None, "exception", None) == ("failed", "exception", None)


def test_a_rank_that_vanished_unseen_is_unknown() -> None:
    assert ended(None, None) == ("unknown", "unknown", None)
    assert ended(None) == ("unknown", "unknown", None)


def test_a_launcher_that_vanished_with_its_ranks_ended_the_run() -> None:
    assert ended(None, None, launcher_gone_ns=99 * S)[:2] == ("killed", "launcher")


def test_a_launcher_that_vanished_long_before_did_not() -> None:
    assert ended(None, None, launcher_gone_ns=90 * S)[:2] == ("unknown", "unknown")


def test_a_completed_run_names_no_exception() -> None:
    end = run_end(Departure(ScriptExit(0), [RankEnd(0, "exception", "ValueError")], ended_ns=0, ended_at=0.0))

    assert (end.status, end.exception) == ("completed", "")


@pytest.mark.parametrize(
    ("first", "how", "told"),
    [
        (None, "killed by SIGKILL", ("failed", "exit", "", "rank 1 killed by SIGKILL")),
        (
            RankEnd(1, "exception", "ValueError"),
            "failed with ValueError",
            ("failed", "exception", "ValueError", "rank 1 failed with ValueError"),
        ),
    ],
)
def test_of_several_ranks_the_end_is_that_of_the_first_one_to_die_not_of_those_who_died_of_it(
    first: Optional[RankEnd], how: str, told: tuple[str, str, str, str]
) -> None:
    ends = [first, RankEnd(0, "exception", "RuntimeError"), RankEnd(2, "exception", "RuntimeError")]

    end = run_end(Departure(ScriptExit(1), ends, ended_ns=0, ended_at=0.0, first_death=f"rank 1 {how}"))

    assert (end.status, end.ended_by, end.exception, end.first_death) == told


@pytest.mark.parametrize("told", [ScriptExit(1), ScriptExit(130, "SIGINT"), None])
def test_a_run_whose_ranks_all_got_a_ctrl_c_was_interrupted_and_no_rank_failed(told: Optional[ScriptExit]) -> None:
    ends = [RankEnd(rank, "exception", "KeyboardInterrupt") for rank in range(3)]

    end = run_end(
        Departure(told, ends, ended_ns=0, ended_at=0.0, was_interrupted=True, first_death="rank 1 failed with it")
    )

    assert (end.status, end.ended_by, end.first_death) == ("killed", "signal SIGINT", "")


def test_a_run_that_saved_itself_behind_a_ctrl_c_ended_well() -> None:
    ends = [RankEnd(rank, "exception", "KeyboardInterrupt") for rank in range(2)]

    assert run_end(Departure(ScriptExit(0), ends, ended_ns=0, ended_at=0.0, was_interrupted=True)).status == "completed"


def test_a_training_whose_own_end_nobody_can_tell_ended_as_its_command_did() -> None:
    assert training_exit(ScriptExit(1), None) == (ScriptExit(1), "")


def test_a_training_that_ended_well_is_not_what_its_command_failed_with() -> None:
    own, note = training_exit(ScriptExit(1), 0)

    assert (own, note) == (ScriptExit(0), "the command that had started the training ended with exit code 1")


def test_a_training_that_was_killed_is_told_by_its_signal_though_its_command_ended_well() -> None:
    assert training_exit(ScriptExit(0), signal.SIGKILL)[0] == ScriptExit(137, "SIGKILL")


def test_a_training_that_ended_as_its_command_is_no_news() -> None:
    assert training_exit(ScriptExit(7), 7 << 8) == (ScriptExit(7), "")
