"""Measures what the inline view costs a script that prints, and what the launcher uses: in turn with a bare pty."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Callable

import psutil
from rows import figure, publish, row

ROWS, COLUMNS = 24, 80
PACED = (30_000, 100e-6)  # lines, seconds of work before each: at most 10,000 a second
FLOOD = (400_000, 0.0)
NUM_ROUNDS = int(os.environ.get("ROUNDS", "7"))
PRINTER = """
import sys, time
num_lines, work_s = int(sys.argv[1]), float(sys.argv[2])
began = time.perf_counter()
for number in range(num_lines):
    until = time.perf_counter() + work_s
    while work_s and time.perf_counter() < until:
        pass
    sys.stdout.write("INFO step %d loss=0.0123 and some more text, until it is a line\\n" % number)
    if work_s:
        sys.stdout.flush()
sys.stdout.flush()
with open(sys.argv[3], "a") as times:
    times.write("%f\\n" % (time.perf_counter() - began))
"""


def main() -> int:
    """Both paces, in turn with the bare script; the table, each figure beside its budget."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (num_lines, work_s) in (("10,000 lines/s", PACED), ("a flood", FLOOD)):
            lines += _rows(name, Path(folder), num_lines, work_s)
    publish("terminal", "A script that prints, below the panel", lines)
    return 0


def _rows(name: str, cwd: Path, num_lines: int, work_s: float) -> list[str]:
    printer, times = cwd / "printer.py", cwd / "times"
    printer.write_text(PRINTER)
    script = [str(printer), str(num_lines), str(work_s), str(times)]
    slower_pct, us_a_line, mib = [], [], []
    for _ in range(NUM_ROUNDS):
        times.unlink(missing_ok=True)
        _watched([sys.executable, *script], cwd)
        used_s, rss = _watched([sys.executable, "-m", "traceml", "run", *script], cwd)
        bare, inline = (float(line) for line in times.read_text().split())
        slower_pct.append(100 * (inline / bare - 1))
        us_a_line.append(1e6 * used_s / num_lines)
        mib.append(rss / 2**20)
    limit = 5.0 if work_s else None
    return [
        row(f"{name}: the script is slower by", limit, "%", {"ours": figure(slower_pct)}),
        row(f"{name}: the launcher's CPU a line", None, "us", {"ours": figure(us_a_line)}, signed=False),
        row(f"{name}: the launcher's memory", 20.0, "MiB", {"ours": figure(mib)}, signed=False),
    ]


def _watched(command: list[str], cwd: Path) -> tuple[float, int]:
    """Runs it on a pty that is read at once; the process's own CPU seconds and memory, shortly before its end."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**environ, "TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_terminal_of(slave),  # noqa: PLW1509  # one system call, no thread here
    )
    os.close(slave)
    used_s, rss, num_reads = 0.0, 0, 0
    known = psutil.Process(process.pid)
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:
            break
        if not data:
            break
        num_reads += 1
        if num_reads % 50 == 0 and process.poll() is None:
            times = known.cpu_times()
            used_s, rss = times.user + times.system, max(rss, known.memory_info().rss)
    process.wait()
    os.close(master)
    return used_s, rss


def _terminal_of(slave: int) -> Callable[[], None]:
    def take() -> None:
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    return take


if __name__ == "__main__":
    sys.exit(main())
