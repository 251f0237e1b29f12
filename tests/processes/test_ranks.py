"""Trains on several real ranks over gloo: who makes the others wait is named, and nobody where nobody does."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Mapping, Optional

import pytest

from tests.processes import running
from traceml.schema import stalls

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch]
SCRIPT = running.SCRIPTS / "ranks_training.py"
NAMING = ("STRAGGLER", "ROTATING_STRAGGLER")


def train(tmp_path: Path, *arguments: str, num_ranks: int = 3) -> running.Result:
    options = ["--mode=summary", f"--nproc-per-node={num_ranks}"]
    return running.run(tmp_path, str(SCRIPT), *arguments, options=options)


def culprit_of(summary: Mapping[str, Any]) -> Optional[tuple[int, str]]:
    """Rank and phase of the straggler that is named."""
    for finding in summary["step_time"]["findings"]:
        if finding["diagnosis"] == "STRAGGLER":
            return finding["ranks"][0], finding["phases"][0]
    return None


@pytest.mark.parametrize(
    ("model", "where", "rank"),
    [
        ("ddp", "input", 2),
        pytest.param("ddp", "backward", 1, marks=pytest.mark.ranks),
        pytest.param("buffers", "input", 0, marks=pytest.mark.ranks),
        pytest.param("own", "backward", 1, marks=pytest.mark.ranks),
        pytest.param("fsdp2", "input", 2, marks=pytest.mark.ranks),
    ],
)
def test_the_rank_that_is_late_is_named_with_its_phase(tmp_path: Path, model: str, where: str, rank: int) -> None:
    result = train(tmp_path, f"--model={model}", f"--where={where}", f"--rank={rank}")

    assert result.end == ("completed", "end", 0, 40), result.stderr
    assert culprit_of(result.summary) == (rank, where), result.summary["step_time"]["findings"]
    assert result.summary["run"]["world_size"] == 3


@pytest.mark.ranks
def test_of_two_ranks_under_fsdp1_the_one_that_is_late_in_its_forward_is_named(tmp_path: Path) -> None:
    result = train(tmp_path, "--model=fsdp1", "--where=forward", "--ms=30", num_ranks=2)

    assert result.end == ("completed", "end", 0, 40), result.stderr
    assert culprit_of(result.summary) == (1, "forward"), result.summary["step_time"]["findings"]
    assert result.summary["step_time"]["phases"]["sync"]["count"] > 0
    assert result.summary["coverage"]["faults"] == []


def test_a_run_in_which_all_are_alike_names_nobody(tmp_path: Path) -> None:
    summary = train(tmp_path).summary

    assert [f for f in summary["step_time"]["findings"] if f["diagnosis"] in NAMING] == []
    assert summary["step_time"]["phases"]["sync"]["count"] > 0


@pytest.mark.ranks
def test_micro_batches_that_reduce_nothing_are_one_unit_with_the_one_that_does(tmp_path: Path) -> None:
    summary = train(tmp_path, "--model=no_sync", "--steps=30", "--where=backward").summary

    assert summary["run"]["steps"] == 120
    assert summary["step_time"]["ranks"]["sync"]["units"] < 40
    assert culprit_of(summary) == (1, "backward")


@pytest.mark.ranks
def test_a_collective_of_the_script_that_waits_is_named_with_its_line(tmp_path: Path) -> None:
    summary = train(tmp_path, "--model=own", "--where=input", "--steps=12").summary
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "this line is named" in text)

    texts = {event["text"] for event in summary["events"] if event["kind"] == "wait"}
    assert f"all_reduce at ranks_training.py:{line}" in texts, summary["events"]


@pytest.mark.ranks
@pytest.mark.parametrize(("model", "why"), [("pairs", "in pairs"), ("part", "part of the ranks")])
def test_nobody_is_named_where_ranks_are_no_peers(tmp_path: Path, model: str, why: str) -> None:
    summary = train(tmp_path, f"--model={model}", "--where=input").summary

    assert culprit_of(summary) is None
    assert any(why in note for note in summary["coverage"]["notes"]), summary["coverage"]


@pytest.mark.ranks
def test_groups_that_advance_at_paces_of_their_own_are_told_apart(tmp_path: Path) -> None:
    result = train(tmp_path, "--model=groups", "--where=forward", "--rank=2")

    said = " ".join(result.stderr.split())
    assert culprit_of(result.summary) is None
    assert "steps/s: ranks 0 and 1 " in said, result.stderr
    assert ", rank 2 " in said


@pytest.mark.ranks
def test_one_rank_alone_has_no_sync(tmp_path: Path) -> None:
    summary = train(tmp_path, "--steps=12", num_ranks=1).summary

    assert summary["step_time"]["phases"]["sync"]["pct"] is None
    assert culprit_of(summary) is None


@pytest.mark.parametrize(
    ("do", "how"),
    [
        ("kill", "killed by SIGKILL"),
        pytest.param("raise", "failed with ValueError", marks=pytest.mark.ranks),
        pytest.param("exit", "left with exit code 5", marks=pytest.mark.ranks),
    ],
)
def test_the_first_rank_that_dies_is_named_with_step_and_memory(tmp_path: Path, do: str, how: str) -> None:
    result = train(tmp_path, f"--do={do}", "--at=80", "--steps=120")

    first = [event for event in result.summary["events"] if event["kind"] == "first death"]
    assert result.code == 1
    assert result.summary["run"]["status"] == "failed"
    assert [(event["rank"], event["step"]) for event in first] == [(1, 81)], result.stderr
    assert first[0]["text"].startswith(f"rank 1 {how} in between steps"), first
    assert "held" in first[0]["text"]
    assert "died" in result.stderr
    assert f"rank 1 {how} after 8" in " ".join(result.stderr.split())


@pytest.mark.ranks
@pytest.mark.parametrize(("where", "line"), [("input", ""), ("forward", "--bare"), ("backward", "")])
def test_a_rank_that_dies_of_an_exception_did_so_in_the_phase_that_it_left(
    tmp_path: Path, where: str, line: str
) -> None:
    result = train(tmp_path, "--do=raise", f"--where={where}", "--at=20", "--steps=40", *filter(None, [line]))

    (first,) = (event for event in result.summary["events"] if event["kind"] == "first death")
    assert (first["rank"], first["step"]) == (1, 21)
    assert first["text"].startswith(f"rank 1 failed with ValueError in {where}"), result.stderr


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("do", "told"),
    [
        ("leave", ["", "; rank 1 had ended before, after 20 steps"]),
        ("late", ["rank 1 left with exit code 5 in ", ""]),
    ],
)
def test_a_rank_that_ends_early_or_with_a_code_behind_its_training_is_named(
    tmp_path: Path, do: str, told: list[str]
) -> None:
    summary = train(tmp_path, f"--do={do}", "--at=20", "--steps=40").summary

    (text,) = (event["text"] for event in summary["events"] if event["kind"] == "first death")
    assert text.startswith(told[0])
    assert text.endswith(told[1])


def test_a_rank_that_does_not_come_is_a_hang_while_it_lasts_and_one_event(tmp_path: Path) -> None:
    options = ["--mode=cli", "--interval=0.5", "--nproc-per-node=3"]
    result = running.run(tmp_path, str(SCRIPT), "--do=sleep", "--at=40", "--steps=50", options=options)

    hangs = [event for event in result.summary["events"] if event["kind"] in ("hang", "wait for a rank")]
    assert result.end == ("completed", "end", 0, 50)
    assert "HANG: rank 1 in input, asleep since" in result.stderr
    assert "ranks 0 and 2 wait" in result.stderr
    assert [(event["kind"], event["rank"], event["step"]) for event in hangs] == [("hang", 1, 41)]
    assert 5_000 < hangs[0]["ms"] < 20_000


@pytest.mark.ranks
@pytest.mark.parametrize(("do", "events"), [("pause", []), ("validate", ["wait for a rank"])])
def test_a_pause_of_the_script_is_no_hang(tmp_path: Path, do: str, events: list[str]) -> None:
    summary = train(tmp_path, f"--do={do}", "--at=5", "--steps=12", "--seconds=8").summary

    found = [event["kind"] for event in summary["events"] if event["kind"] in ("hang", "wait for a rank")]
    assert found == events


@pytest.mark.ranks
def test_a_rank_that_waits_for_a_process_of_its_own_that_works_is_no_hang(tmp_path: Path) -> None:
    summary = train(tmp_path, "--do=delegate", "--at=40", "--steps=50", "--seconds=9").summary

    found = [event["kind"] for event in summary["events"] if event["kind"] in ("hang", "wait for a rank")]
    assert found == ["wait for a rank"]


@pytest.mark.ranks
def test_a_rank_that_evaluates_through_workers_that_work_is_no_hang_and_one_whose_workers_sleep_is(
    tmp_path: Path,
) -> None:
    for do, kind in (("workers", "wait for a rank"), ("sleepers", "hang")):
        folder = tmp_path / do
        folder.mkdir()
        summary = train(folder, f"--do={do}", "--at=40", "--steps=50", "--seconds=8").summary

        found = [(event["kind"], event["rank"]) for event in summary["events"] if event["kind"] in stalls.GROWING]
        assert found == [(kind, 1)], summary["events"]


@pytest.mark.ranks
def test_weights_and_graphs_of_every_way_to_train_in_parallel_are_those_of_a_bare_run(tmp_path: Path) -> None:
    script = str(running.SCRIPTS / "ranks_harmless.py")
    bare = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script]
    expected = subprocess.run(bare, cwd=tmp_path, env=running.environment(), capture_output=True, check=True).stdout

    result = running.run(
        tmp_path, script, options=["--mode=summary", "--nproc-per-node=2"], environ=running.environment(TRACE="1")
    )

    assert result.stdout == expected
    assert result.summary["coverage"]["faults"] == []
    assert result.summary["step_time"]["ranks"]["sync"] is not None


@pytest.mark.ranks
def test_the_ranks_of_a_job_that_torchrun_starts_alone_are_one_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(SCRIPT)]
    command += ["--where=input", "--steps=30"]
    done = subprocess.run(command, cwd=tmp_path, env=running.environment(), capture_output=True, check=True)

    assert running.nothing_runs(tmp_path)
    (folder,) = (tmp_path / "logs").iterdir()
    summary = running.Result(done.returncode, done.stdout, done.stderr.decode(), folder).summary
    assert done.stderr.count(b"recording into") == 1
    assert (summary["run"]["world_size"], summary["run"]["steps"]) == (2, 30)
    assert [rank["rank"] for rank in summary["coverage"]["ranks"]] == [0, 1]
    assert culprit_of(summary) == (1, "input")


def test_ranks_that_talk_in_pairs_and_in_groups_of_their_own_compute_what_they_do_without_us(tmp_path: Path) -> None:
    script = str(running.SCRIPTS / "pairs_training.py")
    found = []
    for number, disabled in enumerate(("1", "")):
        folder = tmp_path / str(number)
        folder.mkdir()
        environ = running.environment(TRACEML_DISABLED=disabled) if disabled else running.environment()
        result = running.run(folder, script, options=["--nproc-per-node=2", "--mode=summary"], environ=environ)
        assert result.code == 0, result.stderr
        found.append(sorted(result.stdout.splitlines()))

    assert found[0] == found[1]
    assert len(found[0]) == 2
