"""Runs scenarios through the real command line and holds final_summary.json against expected.json.

    python check.py [--traceml PATH] [--repeat N] [--all] [--expected FILE] [CALL-PART ...]

Prints a row a scenario and exits 1 if any is wrong. What a scenario may promise, each a key of expected.json:

    diagnosis   one of these is step_time.diagnosis         severity        verdict.severity
    not         none of these is                            price           verdict.impact.pct, from and to
    steps, micro_batches, optimizer_steps, failed_steps, warmup_steps       of run; a number, or from and to
    startup_s, tail_s, warmup_s                             of run          period_p50_ms   of step_time
    pct         shares of phases, from and to               absent          phases that are null: never measured
    part        the first phase of the verdict's finding    says            is in the verdict's words
    lost        lost frames of all ranks                    exit            the script's exit code (0)
    ranks       starts so many                              culprit         rank and phase of the first straggler
    slow        over 25 s: runs only with --all, or by name

Held of every run with a verdict: the phases add up to 100 % and to the period, and startup, warm-up, steady steps and
tail to the run's duration, each within 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Union

SCRIPTS = Path(__file__).resolve().parent / "scripts"
TIMEOUT_S = 300
TOLERANCE = 0.01

Summary = Dict[str, Any]
Wanted = Mapping[str, Any]

OF_RUN = (
    "inferred",
    "steps",
    "micro_batches",
    "optimizer_steps",
    "failed_steps",
    "warmup_steps",
    "startup_s",
    "tail_s",
    "warmup_s",
)


def run_scenario(traceml: str, scripts: Path, call: str, logs: str, *, want: Wanted) -> Union[Summary, str]:
    """The summary that `traceml run` leaves in `logs`, or a sentence that says why there is none."""
    script, *script_args = call.split()
    ranks = ["--nproc-per-node", str(want["ranks"])] if "ranks" in want else []
    command = [traceml, "run", "--mode=summary", "--logs-dir", logs, *ranks, str(scripts / script), *script_args]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRACEML_")}
    environ["PYTHONPATH"] = str(scripts)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=scripts,
        env=environ,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    found = sorted(Path(logs).rglob("final_summary.json"))
    if done.returncode != want.get("exit", 0) or not found:
        return f"exit {done.returncode}, {len(found)} summaries: {done.stderr.strip()[-500:]}"
    summary: Summary = json.loads(found[-1].read_text(encoding="utf-8"))
    return summary


def faults(summary: Summary, want: Wanted) -> Iterator[str]:
    """What of `want` the summary does not say, one short sentence each."""
    yield from _wrong_verdict(summary, want)
    yield from _wrong_numbers(summary, want)
    yield from _wrong_shares(summary, want)
    if summary["step_time"]["diagnosis"] != "INSUFFICIENT_DATA":
        yield from _wrong_sums(summary)
    if "culprit" in want:
        yield from _wrong_culprit(summary, want)


def _wrong_verdict(summary: Summary, want: Wanted) -> Iterator[str]:
    verdict, diagnosis = summary["verdict"], summary["step_time"]["diagnosis"]
    if "diagnosis" in want and diagnosis not in want["diagnosis"]:
        yield f"diagnosis {diagnosis}, not {' or '.join(want['diagnosis'])}"
    if diagnosis in want.get("not", []):
        yield f"diagnosis {diagnosis} in a healthy run"
    if "severity" in want and verdict["severity"] != want["severity"]:
        yield f"severity {verdict['severity']}, not {want['severity']}"
    if "price" in want and _is_outside(verdict["impact"] and verdict["impact"]["pct"], want["price"]):
        yield f"price {verdict['impact']}, not {want['price'][0]} to {want['price'][1]} %"
    words = " ".join((verdict["summary"], verdict["why"], verdict["next"]))
    if want.get("says", "").lower() not in words.lower():
        yield f"the verdict does not say {want['says']!r}: {words}"
    if "part" in want:
        finding = next((f for f in summary["step_time"]["findings"] if f["diagnosis"] == diagnosis), None)
        part = finding and finding["phases"][:1]
        if part != [want["part"]]:
            yield f"names {part}, not {want['part']}"


def _wrong_numbers(summary: Summary, want: Wanted) -> Iterator[str]:
    numbers = {name: summary["run"].get(name) for name in OF_RUN}
    numbers["period_p50_ms"] = summary["step_time"]["period_ms"]["p50"]
    numbers["lost"] = sum(rank["lost_frames"] for rank in summary["coverage"]["ranks"])
    for name, number in numbers.items():
        if name in want:
            limits = want[name] if isinstance(want[name], list) else [want[name]] * 2
            if _is_outside(number, limits):
                yield f"{name} {number}, not {want[name]}"


def _wrong_shares(summary: Summary, want: Wanted) -> Iterator[str]:
    for phase in want.get("absent", []):
        if _share(summary, phase) is not None:
            yield f"{phase} was never measured, yet has a share"
    for phase, limits in want.get("pct", {}).items():
        share = _share(summary, phase)
        if _is_outside(share or 0, limits):
            yield f"{phase} {share} %, not {limits[0]} to {limits[1]}"


def _wrong_sums(summary: Summary) -> Iterator[str]:
    run, step_time = summary["run"], summary["step_time"]
    phases = [phase for phase in step_time["phases"].values() if phase]
    total = sum(phase["pct"] or 0 for phase in phases)
    if abs(total - 100) > 100 * TOLERANCE:
        yield f"phases add up to {total:.1f} %"
    mean = step_time["period_ms"]["mean"]
    parts = sum(phase["mean_ms"] or 0 for phase in phases)
    if abs(parts - mean) > mean * TOLERANCE:
        yield f"phases add up to {parts:.3f} ms of {mean:.3f}"
    if run["failed_steps"] or run["world_size"] > 1:
        return  # a failed step's time is in no mean, and ranks do not start together
    num_steady = run["steps"] - run["warmup_steps"]
    seconds = mean * num_steady / 1e3 + run["startup_s"] + (run["warmup_s"] or 0) + run["tail_s"]
    if abs(seconds - run["duration_s"]) > run["duration_s"] * TOLERANCE:
        yield f"startup, steps and tail add up to {seconds:.3f} s of {run['duration_s']:.3f}"


def _wrong_culprit(summary: Summary, want: Wanted) -> Iterator[str]:
    found = next((f for f in summary["step_time"]["findings"] if "STRAGGLER" in f["diagnosis"]), None)
    rank, phase = want["culprit"]
    if not found or found["ranks"][:1] != [rank] or found["phases"][:1] != [phase]:
        yield f"culprit {found and (found['ranks'], found['phases'])}, not rank {rank} in {phase}"


def _share(summary: Summary, phase: str) -> Optional[float]:
    share: Optional[float] = (summary["step_time"]["phases"].get(phase) or {}).get("pct")
    return share


def _is_outside(number: Optional[float], limits: List[float]) -> bool:
    return number is None or not limits[0] <= number <= limits[1]


def check(traceml: str, scripts: Path, call: str, want: Wanted) -> List[str]:
    """Runs one scenario: what is wrong with its summary, nothing when it is right."""
    with tempfile.TemporaryDirectory() as logs:
        try:
            summary = run_scenario(traceml, scripts, call, logs, want=want)
            return [summary] if isinstance(summary, str) else list(faults(summary, want))
        except (subprocess.TimeoutExpired, KeyError, TypeError, ValueError) as error:
            return [f"{type(error).__name__}: {error}"]


def choose(expected: Mapping[str, Wanted], names: List[str], *, everything: bool) -> List[str]:
    """The calls that are named in full, else those that hold a name, else all but the slow ones."""
    if names:
        return [call for call in expected if call in names] or [c for c in expected if any(n in c for n in names)]
    return [call for call, want in expected.items() if everything or not want.get("slow")]


def find_traceml() -> str:
    """The `traceml` of this Python's environment, else that of the PATH."""
    beside = Path(sys.executable).with_name("traceml")
    return str(beside) if beside.exists() else shutil.which("traceml") or "traceml"


def main() -> int:
    """Runs the chosen scenarios, one at a time, and counts the wrong ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traceml", default=find_traceml(), help="the command to check")
    parser.add_argument("--repeat", type=int, default=1, help="how often each scenario has to be right")
    parser.add_argument("--all", action="store_true", help="the slow ones too")
    parser.add_argument("--expected", type=Path, default=SCRIPTS / "expected.json")
    parser.add_argument("names", nargs="*", metavar="CALL-PART")
    args = parser.parse_args()
    expected: Mapping[str, Wanted] = json.loads(args.expected.read_text(encoding="utf-8"))
    calls = choose(expected, args.names, everything=args.all)
    num_wrong = 0
    for call in calls:
        tries = [check(args.traceml, args.expected.resolve().parent, call, expected[call]) for _ in range(args.repeat)]
        said = ["; ".join(one) for one in tries if one]
        num_wrong += bool(said)
        score = f" {args.repeat - len(said)}/{args.repeat}" if args.repeat > 1 else ""
        print(f"{'WRONG' if said else 'right'}{score}  {call}{': ' + ' | '.join(said) if said else ''}", flush=True)
    print(f"{len(calls) - num_wrong} right, {num_wrong} wrong")
    return 1 if num_wrong or not calls else 0


if __name__ == "__main__":
    sys.exit(main())
