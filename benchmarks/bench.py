"""Runs every benchmark in turn and gathers their tables in benchmarks/out/results.md."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from rows import OUT

HERE = Path(__file__).resolve().parent
SCRIPTS = ("bench_step.py", "bench_run.py", "bench_store.py", "bench_terminal.py")
TABLES = ("step", "step_blocks", "run", "beside", "store", "terminal")


def main() -> int:
    """Runs the benchmarks; 1 when one of them could not be run."""
    for path in OUT.glob("*.md"):
        path.unlink()
    failed = [
        script for script in SCRIPTS if subprocess.run([sys.executable, str(HERE / script)], check=False).returncode
    ]
    tables = [(OUT / f"{name}.md").read_text(encoding="utf-8") for name in TABLES if (OUT / f"{name}.md").exists()]
    about = f"Python {platform.python_version()} on {platform.machine()}, {_num_cores()} cores."
    (OUT / "results.md").write_text("\n".join((about, "", *tables)), encoding="utf-8")
    print(f"{OUT / 'results.md'}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
