"""Starts the same training bare, under TraceML and under upstream, and watches the processes around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import psutil

TRAINING = Path(__file__).with_name("training.py")
UPSTREAM_VARIABLE = "TRACEML_UPSTREAM_PYTHON"
SAMPLE_S = 0.02
TIMEOUT_S = 600


@dataclass(frozen=True)
class Contender:
    """A way to run the training: its name, and the command around script and arguments."""

    name: str
    command: Callable[[str, list[str], str], list[str]]  # script, its arguments, folder for logs


@dataclass
class Neighbour:
    """A process of a run that is not the training: the highest RSS seen, and the last CPU."""

    command: str
    rss_bytes: int = 0
    cpu_s: float = 0.0


@dataclass
class Outcome:
    """One run: what the training wrote down, when things happened (seconds of one clock), and who else was there."""

    found: dict[str, Any]
    start_s: float
    prompt_s: float
    trainer_rss_bytes: int = 0
    neighbours: dict[int, Neighbour] = field(default_factory=dict)

    @property
    def first_step_s(self) -> float:
        """From the command to the first step."""
        return float(self.found["first_step_s"]) - self.start_s

    @property
    def end_s(self) -> float:
        """From the training's last line to the prompt."""
        return self.prompt_s - float(self.found["end_s"])

    @property
    def total_s(self) -> float:
        """From the command to the prompt."""
        return self.prompt_s - self.start_s

    @property
    def beside_cpu_s(self) -> float:
        """CPU of all processes beside the training."""
        return sum(one.cpu_s for one in self.neighbours.values())

    def rss_mb_of(self, part: str) -> Optional[float]:
        """The highest RSS of the neighbour whose command holds `part`; None when there was none."""
        sizes = [one.rss_bytes / 1e6 for one in self.neighbours.values() if part in one.command]
        return max(sizes) if sizes else None


BARE = Contender("bare", lambda script, arguments, _: [sys.executable, script, *arguments])


def _under_ours(script: str, arguments: list[str], logs: str) -> list[str]:
    traceml = str(Path(sys.executable).with_name("traceml"))
    return [traceml, "run", "--mode=summary", "--logs-dir", logs, script, *arguments]


OURS = Contender("ours", lambda script, arguments, logs: [*_under_ours(script, arguments, logs), "--traced", "traceml"])
ZERO_CODE = Contender("zero code", _under_ours)  # the bare script, unchanged: its steps are inferred


def upstream() -> Optional[Contender]:
    """The other implementation, when TRACEML_UPSTREAM_PYTHON names the python of an environment that has it."""
    python = os.environ.get(UPSTREAM_VARIABLE)
    if not python or not Path(python).with_name("traceml").exists():
        print(f"upstream: left out, {UPSTREAM_VARIABLE} names no environment with traceml-ai in it", file=sys.stderr)
        return None
    traceml = str(Path(python).with_name("traceml"))
    return Contender(
        "upstream",
        lambda script, arguments, logs: [
            *(traceml, "run", "--mode=summary", "--logs-dir", logs, "--run-name", "bench", script),
            *("--args", *arguments, "--traced", "traceml_ai"),
        ],
    )


def contenders() -> list[Contender]:
    """Bare, ours, and upstream when there is one, in the order of a round."""
    other = upstream()
    return [BARE, OURS, *([other] if other else [])]


def run(contender: Contender, *arguments: str, watch: bool = False) -> Outcome:
    """Runs the training once.

    Raises:
        RuntimeError: The command failed or the training wrote nothing, with the end of its stderr.
    """
    with tempfile.TemporaryDirectory(prefix="traceml-bench-") as folder:
        to = Path(folder) / "found.json"
        command = contender.command(str(TRAINING), [*arguments, "--to", str(to)], str(Path(folder) / "logs"))
        start_s = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        watcher = _Watcher(process.pid, folder) if watch else None
        _, stderr = process.communicate(timeout=TIMEOUT_S)
        prompt_s = time.monotonic()
        if process.returncode or not to.exists():
            raise RuntimeError(f"{contender.name} ended with {process.returncode}: {stderr.decode()[-800:]}")
        outcome = Outcome(json.loads(to.read_text(encoding="utf-8")), start_s, prompt_s)
        if watcher:
            watcher.finish(outcome)
        return outcome


def rounds(
    num_rounds: int, *arguments: str, watch: bool = False, others: Sequence[Contender] = ()
) -> dict[str, list[Outcome]]:
    """Runs all contenders in turn, `num_rounds` times; the i-th outcomes of two contenders are a pair."""
    chosen = [*contenders(), *others]
    outcomes: dict[str, list[Outcome]] = {one.name: [] for one in chosen}
    for i in range(num_rounds):
        for contender in chosen:
            print(f"  round {i + 1} of {num_rounds}: {contender.name}", file=sys.stderr)
            outcomes[contender.name].append(run(contender, *arguments, watch=watch))
    return outcomes


def _environ() -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACEML_")}
    return {**kept, "OMP_NUM_THREADS": "1", "CI": "true"}


class _Watcher(threading.Thread):
    """Samples the processes below `pid`, and those whose command names `folder`, until told to finish."""

    def __init__(self, pid: int, folder: str) -> None:
        super().__init__(daemon=True)
        self._pid, self._folder = pid, folder
        self._seen: dict[int, Neighbour] = {}
        self._over = threading.Event()
        self._own = os.getpid()
        self.start()

    def run(self) -> None:
        turn = 0
        family: list[psutil.Process] = []
        while not self._over.wait(SAMPLE_S):
            if turn % 5 == 0:
                family = self._family()
            turn += 1
            for process in family:
                self._sample(process)

    def finish(self, outcome: Outcome) -> None:
        """Waits for what outlives the prompt, then hands the samples over."""
        deadline = time.monotonic() + 10
        while self._is_anyone_left(outcome.found["pid"]) and time.monotonic() < deadline:
            time.sleep(SAMPLE_S)
        self._over.set()
        self.join()
        trainer = self._seen.pop(outcome.found["pid"], Neighbour(""))
        outcome.trainer_rss_bytes = trainer.rss_bytes
        outcome.neighbours = self._seen

    def _family(self) -> list[psutil.Process]:
        try:
            launcher = psutil.Process(self._pid)
            found = {process.pid: process for process in (launcher, *launcher.children(recursive=True))}
        except psutil.Error:
            found = {}
        for process in psutil.process_iter(["cmdline"]):
            if any(self._folder in part for part in process.info["cmdline"] or ()):
                found.setdefault(process.pid, process)
        found.pop(self._own, None)
        return list(found.values())

    def _sample(self, process: psutil.Process) -> None:
        try:
            with process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    return
                times, rss = process.cpu_times(), process.memory_info().rss
                one = self._seen.setdefault(process.pid, Neighbour(""))
                one.command = " ".join(process.cmdline()) or one.command  # empty once it is ending
        except psutil.Error:
            return
        one.rss_bytes, one.cpu_s = max(one.rss_bytes, rss), times.user + times.system

    def _is_anyone_left(self, trainer: int) -> bool:
        return any(process.pid != trainer and process.is_running() for process in self._family())
