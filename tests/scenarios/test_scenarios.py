"""Runs each scenario once through the real command line, and holds the checker itself to what it promises."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

HERE = Path(__file__).resolve().parent
CHECK = HERE / "check.py"
EXPECTED: Dict[str, Dict[str, Any]] = json.loads((HERE / "scripts" / "expected.json").read_text(encoding="utf-8"))
TIMEOUT_S = 400
IN_CI = [call for call, want in EXPECTED.items() if not want.get("slow")]


def run_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECK), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.torch
@pytest.mark.scenario
@pytest.mark.parametrize("call", IN_CI)
def test_a_training_with_a_known_cause_gets_the_right_verdict_and_numbers(call: str) -> None:
    done = run_check(call)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_script_has_an_expectation_and_every_expectation_a_script() -> None:
    of_others = {"workload.py", "ranks_blocks.py"}  # no scenario, and that of price.py
    scripts = {path.name for path in (HERE / "scripts").glob("*.py")} - of_others

    assert scripts == {call.split()[0] for call in EXPECTED}


def a_summary(**run: Any) -> Dict[str, Any]:
    """A true one: 60 steady steps of 40 ms, half of it input, in a run of 5 s."""
    phases = {"input": {"pct": 50.0, "mean_ms": 20.0}, "forward": {"pct": 50.0, "mean_ms": 20.0}, "optimizer": None}
    seconds = {"startup_s": 2.5, "warmup_s": 0.0, "tail_s": 0.1, "duration_s": 5.0}
    return {
        "run": {"steps": 60, "warmup_steps": 0, "failed_steps": 0, "world_size": 1, **seconds, **run},
        "verdict": {
            "severity": "critical",
            "summary": "waits for data",
            "why": "",
            "next": "num_workers=4",
            "impact": {"pct": 50.0},
        },
        "step_time": {
            "diagnosis": "INPUT_BOUND",
            "period_ms": {"mean": 40.0, "p50": 40.0},
            "phases": phases,
            "findings": [{"diagnosis": "INPUT_BOUND", "phases": ["input"], "ranks": [0]}],
        },
        "coverage": {"ranks": [{"lost_frames": 0}]},
    }


def check_one(folder: Path, summary: Dict[str, Any], **want: Any) -> str:
    """What check.py says of a `traceml` that leaves this summary."""
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (folder / "expected.json").write_text(json.dumps({"some.py": want}), encoding="utf-8")
    traceml = folder / "traceml"
    traceml.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        "logs = sys.argv[sys.argv.index('--logs-dir') + 1]\n"
        f"shutil.copy({str(folder / 'summary.json')!r}, logs + '/final_summary.json')\n",
        encoding="utf-8",
    )
    traceml.chmod(traceml.stat().st_mode | stat.S_IXUSR)
    done = run_check("--traceml", str(traceml), "--expected", str(folder / "expected.json"))
    return done.stdout.splitlines()[0] if done.stdout else done.stderr


def test_the_checker_calls_a_true_summary_right(tmp_path: Path) -> None:
    want = {"diagnosis": ["INPUT_BOUND"], "price": [42, 58], "steps": 60, "pct": {"input": [42, 58]}, "lost": 0}

    row = check_one(tmp_path, a_summary(), part="input", says="num_workers", absent=["optimizer"], **want)

    assert row == "right  some.py"


@pytest.mark.parametrize(
    ("want", "said"),
    [
        ({"diagnosis": ["COMPUTE_BOUND"]}, "diagnosis INPUT_BOUND, not COMPUTE_BOUND"),
        ({"not": ["INPUT_BOUND"]}, "in a healthy run"),
        ({"severity": "warning"}, "severity critical"),
        ({"price": [60, 70]}, "price"),
        ({"says": "epoch start"}, "does not say 'epoch start'"),
        ({"part": "forward"}, "names ['input'], not forward"),
        ({"steps": [61, 70]}, "steps 60"),
        ({"micro_batches": 60}, "micro_batches None"),
        ({"period_p50_ms": [10, 13]}, "period_p50_ms 40.0"),
        ({"lost": 1}, "lost 0"),
        ({"absent": ["input"]}, "input was never measured"),
        ({"pct": {"backward": [1, 9]}}, "backward None %"),
        ({"culprit": [1, "input"]}, "culprit None"),
        ({"exit": 7}, "exit 0, 1 summaries"),
    ],
)
def test_the_checker_calls_a_broken_promise_wrong(tmp_path: Path, want: Dict[str, Any], said: str) -> None:
    row = check_one(tmp_path, a_summary(), **want)

    assert row.startswith("WRONG  some.py")
    assert said in row


def test_the_checker_calls_a_run_wrong_whose_parts_do_not_add_up_to_its_duration(tmp_path: Path) -> None:
    row = check_one(tmp_path, a_summary(duration_s=5.1))

    assert "add up to 5.000 s of 5.100" in row


def test_the_checker_calls_phases_wrong_that_do_not_add_up_to_the_period(tmp_path: Path) -> None:
    summary = a_summary()
    summary["step_time"]["phases"]["forward"] = {"pct": 47.0, "mean_ms": 18.8}

    row = check_one(tmp_path, summary)

    assert "add up to 97.0 %" in row
    assert "add up to 38.800 ms of 40.000" in row
